-- The life of a campaign: the changes of its status that are allowed, the record of every change,
-- and its discount. The new columns lock the table, for a moment. Settling queues behind a request
-- for this lock, so it is given up soon and requested again.
DO $$
DECLARE
	holders text;
BEGIN
	PERFORM set_config('lock_timeout', '500', true);
	FOR i IN 1 .. 5 LOOP
		BEGIN
			LOCK TABLE receive_rejected, coupon IN ACCESS EXCLUSIVE MODE;
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
		AND l.relation IN ('coupon'::regclass, 'receive_rejected'::regclass);
	RAISE EXCEPTION 'coupon cannot be locked: it is used by the processes %',
			coalesce(holders, 'that have ended meanwhile')
		USING HINT = 'End their transactions, then run couponctl migrate again.';
END
$$;
SET LOCAL lock_timeout = 0;

-- What a user gets. Amounts are in the smallest unit of the currency (cents). For shops: couponmq
-- only stores and shows it.
ALTER TABLE coupon
	ADD COLUMN currency text CHECK (currency ~ '^[A-Z]{3}$'),      -- ISO 4217
	ADD COLUMN amount_off bigint CHECK (amount_off > 0),
	ADD COLUMN percent_off numeric(5,2) CHECK (percent_off > 0 AND percent_off <= 100),
	ADD COLUMN threshold bigint CHECK (threshold > 0),             -- for purchases from this on
	ADD COLUMN cap bigint CHECK (cap > 0),                         -- the most that is taken off
	ADD COLUMN metadata jsonb CHECK (jsonb_typeof(metadata) = 'object'
		AND octet_length(metadata::text) <= 8192),
	-- Whether a voided receive gives back its piece of the stock and its slot: both or neither.
	ADD COLUMN void_returns boolean NOT NULL DEFAULT true,
	ADD CONSTRAINT coupon_discount CHECK (
		(amount_off IS NULL OR percent_off IS NULL)
		AND (cap IS NULL OR percent_off IS NOT NULL)
		AND (currency IS NOT NULL
			OR (amount_off IS NULL AND threshold IS NULL AND cap IS NULL)));
GRANT UPDATE (user_limit, currency, amount_off, percent_off, threshold, cap, metadata, void_returns)
	ON coupon TO couponmq_app;

-- The one list of the changes of status that are allowed.
CREATE TABLE campaign_transition (
	from_status text NOT NULL,
	to_status   text NOT NULL,
	action      text NOT NULL,
	PRIMARY KEY (from_status, to_status)
);
INSERT INTO campaign_transition (from_status, to_status, action) VALUES
	('draft', 'published', 'publish'),
	('published', 'paused', 'pause'),
	('paused', 'published', 'resume'),
	('published', 'closed', 'close'),
	('paused', 'closed', 'close');
GRANT SELECT ON campaign_transition TO couponmq_app;

-- Every change, in the order of its id. Rows are only added.
CREATE TABLE campaign_history (
	coupon_id   bigint NOT NULL,
	id          bigint GENERATED ALWAYS AS IDENTITY,
	made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
	made_by     text NOT NULL,
	action      text NOT NULL,
	from_status text,           -- NULL: the coupon is new
	version     int NOT NULL,   -- of the terms, after the change
	terms       jsonb NOT NULL, -- all of them, after the change
	PRIMARY KEY (coupon_id, id)
);
GRANT SELECT, INSERT ON campaign_history TO couponmq_app;

CREATE OR REPLACE FUNCTION campaign_transition_check() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	IF current_setting('couponmq.recovering', true) = 'on' THEN
		RETURN NEW;
	END IF;
	IF NOT EXISTS (SELECT FROM campaign_transition AS t
			WHERE t.from_status = OLD.status AND t.to_status = NEW.status) THEN
		RAISE EXCEPTION 'coupon % is %: it cannot become %', OLD.id, OLD.status, NEW.status
			USING ERRCODE = 'check_violation', TABLE = 'coupon', COLUMN = 'status';
	END IF;
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION campaign_history_add() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
DECLARE
	-- What is counted, and not decided by a person.
	counts CONSTANT text[] := '{issued_num,version,generation,seq_seen,settled_num,settled_at,'
		'created_at,updated_at,late_num,rebuild_asked,rebuild_done,rebuild_told,expires_at,'
		'outcome_at,generation_folded}';
	terms  jsonb := to_jsonb(NEW) - counts;
	action text;
BEGIN
	IF TG_OP = 'UPDATE' THEN
		IF terms = to_jsonb(OLD) - counts THEN
			RETURN NULL;
		END IF;
		SELECT t.action INTO action FROM campaign_transition AS t
		WHERE t.from_status = OLD.status AND t.to_status = NEW.status;
	ELSE
		action := 'create';
	END IF;
	IF current_setting('couponmq.recovering', true) = 'on' THEN
		action := 'recover';
	END IF;
	INSERT INTO campaign_history (coupon_id, made_by, action, from_status, version, terms)
	VALUES (NEW.id,
		coalesce(nullif(current_setting('couponmq.by', true), ''),
			nullif(current_setting('application_name'), ''), session_user),
		coalesce(action, 'edit'),
		CASE TG_OP WHEN 'UPDATE' THEN OLD.status END, NEW.version, terms);
	RETURN NULL;
END
$$;

CREATE TRIGGER campaign_transition_check BEFORE UPDATE OF status ON coupon
	FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status)
	EXECUTE FUNCTION campaign_transition_check();

CREATE TRIGGER campaign_history_add
	AFTER INSERT OR UPDATE OF name, total_num, user_limit, begin_at, end_at, valid_days,
		valid_from, valid_to, status, currency, amount_off, percent_off, threshold, cap,
		metadata, void_returns ON coupon
	FOR EACH ROW EXECUTE FUNCTION campaign_history_add();

-- User coupons that were taken back after they were issued. If their stock and their slot came back
-- as well, the row of user_coupon is gone, and receive_rejected has the receive; otherwise the row
-- stays, and counts.
CREATE TABLE coupon_void (
	coupon_id   bigint NOT NULL,
	batch       uuid NOT NULL,
	idx         smallint NOT NULL,
	user_id     text COLLATE "C" NOT NULL,
	slot        smallint NOT NULL,
	is_returned boolean NOT NULL,
	why         text,
	voided_by   text NOT NULL,
	voided_at   timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (coupon_id, batch, idx)
);
GRANT SELECT, INSERT ON coupon_void TO couponmq_app;
CREATE INDEX coupon_void_user ON coupon_void (coupon_id, user_id);

-- Without a scan: what is there met the old constraint, which allows less.
ALTER TABLE receive_rejected DROP CONSTRAINT receive_rejected_reason_check;
ALTER TABLE receive_rejected ADD CONSTRAINT receive_rejected_reason_check
	CHECK (reason IN ('unknown_coupon', 'slot_taken', 'slot_invalid', 'out_of_stock',
		'key_taken', 'lost', 'voided')) NOT VALID;

-- Those that exist: from here on their changes are known.
INSERT INTO campaign_history (coupon_id, made_by, action, version, terms)
SELECT id, 'couponctl migrate', 'record', version,
	to_jsonb(c) - '{issued_num,version,generation,seq_seen,settled_num,settled_at,created_at,'
		'updated_at,late_num,rebuild_asked,rebuild_done,rebuild_told,expires_at,outcome_at,'
		'generation_folded}'::text[]
FROM coupon AS c ORDER BY id;
