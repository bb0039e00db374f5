-- For the trigger. Settling queues behind a request for this lock, so it is given up soon and
-- requested again.
DO $$
DECLARE
	holders text;
BEGIN
	PERFORM set_config('lock_timeout', '500', true);
	FOR i IN 1 .. 5 LOOP
		BEGIN
			LOCK TABLE coupon IN SHARE ROW EXCLUSIVE MODE;
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
		AND l.relation = 'coupon'::regclass AND l.mode <> 'AccessShareLock'
		AND l.mode <> 'RowShareLock';
	RAISE EXCEPTION 'coupon cannot be locked: it is used by the processes %',
			coalesce(holders, 'that have ended meanwhile')
		USING HINT = 'End their transactions, then run couponctl migrate again.';
END
$$;
SET LOCAL lock_timeout = 0;

-- How many transactions have changed something. The numbers only grow, and each is copied to Redis
-- after its COMMIT: a PostgreSQL whose numbers are below the copy was put back to an earlier
-- moment. There are many rows, so that no transaction waits for another one to count.
CREATE TABLE change_count (
	stripe smallint PRIMARY KEY,
	num    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO change_count (stripe) SELECT generate_series(0, 63);
GRANT SELECT, INSERT, UPDATE (num) ON change_count TO couponmq_app;

-- Changes by operators and the keeper. Those of settle() are counted by sql/query/settle.sql.
CREATE OR REPLACE FUNCTION coupon_change_count() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM change_note();
	RETURN NULL;
END
$$;

CREATE TRIGGER coupon_change_count
	AFTER INSERT OR UPDATE OF name, total_num, user_limit, begin_at, end_at, valid_days,
		valid_from, valid_to, status, version, generation, settled_at ON coupon
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_change_count();
