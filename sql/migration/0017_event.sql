-- Events: what happens to receives and campaigns, for other systems; see docs/events.md. The new
-- column and the triggers lock tables, for a moment. Settling queues behind a request for such a
-- lock, so it is given up soon and requested again.
DO $$
DECLARE
	holders text;
BEGIN
	PERFORM set_config('lock_timeout', '500', true);
	FOR i IN 1 .. 5 LOOP
		BEGIN
			LOCK TABLE receive_rejected, coupon IN ACCESS EXCLUSIVE MODE;
			LOCK TABLE coupon_void, campaign_history IN SHARE ROW EXCLUSIVE MODE;
			RETURN;
		EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
			PERFORM pg_sleep(0.2 * i);
		END;
	END LOOP;
	SELECT string_agg(DISTINCT format('%s (%s)', a.pid, a.application_name), ', ')
	INTO holders
	FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
	WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
		AND l.database = (SELECT d.oid FROM pg_database AS d
			WHERE d.datname = current_database())
		AND l.relation IN ('coupon'::regclass, 'receive_rejected'::regclass,
			'coupon_void'::regclass, 'campaign_history'::regclass);
	RAISE EXCEPTION 'coupon cannot be locked: it is used by the processes %',
			coalesce(holders, 'that have ended meanwhile')
		USING HINT = 'End their transactions, then run couponctl migrate again.';
END
$$;
SET LOCAL lock_timeout = 0;

ALTER TABLE coupon
	ADD COLUMN events_on boolean NOT NULL DEFAULT false,
	-- The transaction that last set the validity; NULL: none since the coupon was created.
	ADD COLUMN valid_xid xid8;
GRANT UPDATE (events_on) ON coupon TO couponmq_app;

-- Events that are not published yet: a row is all events of one type of one transaction. Its id is
-- taken while the transaction holds the locks of all its coupons. So the ids of the rows of a
-- coupon are in the order of its commits, and who sees a row sees all earlier rows of its coupons.
-- That is why the sequence must not have a cache.
CREATE TABLE event_log (
	id            bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
	made_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
	type          text NOT NULL CHECK (type IN ('coupon.issued', 'coupon.rejected',
		'coupon.voided', 'campaign.changed')),
	num           int NOT NULL CHECK (num > 0), -- how many events
	coupon        bigint[] NOT NULL,            -- of each; a single one: of all of them
	-- Receives: element i of each array is one event.
	batch         uuid[],
	idx           smallint[],
	user_id       text[],
	slot          smallint[],
	key           text[],                       -- '' is none
	at_ms         bigint[],                     -- when it was accepted
	reason        text[],                       -- of a rejection
	-- How long the issued receives of a coupon are valid: those of one time of acceptance, or
	-- (0) of any. From then on (0: from the receive); for so many days (0: not told in days),
	-- or until then (0: no end).
	valid_coupon  bigint[],
	valid_at_ms   bigint[],
	valid_from_ms bigint[],
	valid_days    int[],
	valid_to_ms   bigint[],
	history_id    bigint,                       -- of the row of campaign_history
	detail        jsonb                         -- further members of the event's data
) WITH (
	-- Every row is deleted soon.
	autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
	toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 50000
);
GRANT SELECT, INSERT, DELETE ON event_log TO couponmq_app;

-- Where PostgreSQL has it: the standard method takes as long as all else that a row costs.
DO $$
BEGIN
	ALTER TABLE event_log ALTER coupon SET COMPRESSION lz4, ALTER batch SET COMPRESSION lz4,
		ALTER idx SET COMPRESSION lz4, ALTER user_id SET COMPRESSION lz4,
		ALTER slot SET COMPRESSION lz4, ALTER key SET COMPRESSION lz4,
		ALTER at_ms SET COMPRESSION lz4, ALTER reason SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
	NULL;
END
$$;

-- The triggers' functions are in sql/function. They are replaced in this transaction, or are there
-- already.
DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY
		'{event_rejected_add,event_voided_add,event_changed_add,coupon_valid_note}'::text[]
	LOOP
		IF to_regprocedure(name || '()') IS NULL THEN
			EXECUTE format('CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql'
				' AS $f$ BEGIN RETURN NULL; END $f$', name);
		END IF;
	END LOOP;
END
$$;

CREATE TRIGGER event_rejected_add AFTER INSERT ON receive_rejected
	REFERENCING NEW TABLE AS added
	FOR EACH STATEMENT EXECUTE FUNCTION event_rejected_add();
CREATE TRIGGER event_voided_add AFTER INSERT ON coupon_void
	FOR EACH ROW EXECUTE FUNCTION event_voided_add();
CREATE TRIGGER event_changed_add AFTER INSERT ON campaign_history
	FOR EACH ROW EXECUTE FUNCTION event_changed_add();

CREATE TRIGGER coupon_valid_note BEFORE UPDATE OF valid_days, valid_from, valid_to ON coupon
	FOR EACH ROW
	WHEN ((NEW.valid_days, NEW.valid_from, NEW.valid_to)
		IS DISTINCT FROM (OLD.valid_days, OLD.valid_from, OLD.valid_to))
	EXECUTE FUNCTION coupon_valid_note();

DROP TRIGGER campaign_history_add ON coupon;
CREATE TRIGGER campaign_history_add
	AFTER INSERT OR UPDATE OF name, total_num, user_limit, begin_at, end_at, valid_days,
		valid_from, valid_to, status, currency, amount_off, percent_off, threshold, cap,
		metadata, void_returns, events_on ON coupon
	FOR EACH ROW EXECUTE FUNCTION campaign_history_add();
