-- PostgreSQL parses each CHECK from its text in every statement, and again for each partition. In
-- settle() that took a fifth of the time of a transaction with 58 receives. So settle() checks what
-- it inserts into user_coupon, and a trigger checks the terms of a coupon: it does not fire when
-- only counts change. Of the counts the CHECKs stay.

-- Settling queues behind a request for these locks, so it is given up soon and requested again.
DO $$
DECLARE
	holders text;
BEGIN
	PERFORM set_config('lock_timeout', '500', true);
	FOR i IN 1 .. 5 LOOP
		BEGIN
			LOCK TABLE coupon, user_coupon IN ACCESS EXCLUSIVE MODE;
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
		AND l.relation IN (SELECT 'coupon'::regclass
			UNION ALL SELECT relid FROM pg_partition_tree('user_coupon'));
	RAISE EXCEPTION 'coupon and user_coupon cannot be locked: they are used by the processes %',
			coalesce(holders, 'that have ended meanwhile')
		USING HINT = 'End their transactions, then run couponctl migrate again.';
END
$$;
SET LOCAL lock_timeout = 0;

ALTER TABLE user_coupon
	DROP CONSTRAINT user_coupon_user_id_check,
	DROP CONSTRAINT user_coupon_slot_check,
	DROP CONSTRAINT user_coupon_idx_check,
	DROP CONSTRAINT user_coupon_key_check;

ALTER TABLE coupon
	DROP CONSTRAINT coupon_id_check,
	DROP CONSTRAINT coupon_name_check,
	DROP CONSTRAINT coupon_total_num_check,
	DROP CONSTRAINT coupon_user_limit_check,
	DROP CONSTRAINT coupon_begin_at_check,
	DROP CONSTRAINT coupon_end_at_check,
	DROP CONSTRAINT coupon_valid_days_check,
	DROP CONSTRAINT coupon_valid_from_check,
	DROP CONSTRAINT coupon_valid_to_check,
	DROP CONSTRAINT coupon_status_check,
	DROP CONSTRAINT coupon_window,
	DROP CONSTRAINT coupon_validity;

CREATE OR REPLACE FUNCTION coupon_terms_check() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'coupon % has terms that are not possible', NEW.id
		USING ERRCODE = 'check_violation', TABLE = 'coupon', CONSTRAINT = 'coupon_terms';
END
$$;

-- As a CHECK, it accepts a condition that is NULL.
CREATE TRIGGER coupon_terms_check
	BEFORE INSERT OR UPDATE OF id, name, total_num, user_limit, begin_at, end_at, valid_days,
		valid_from, valid_to, status ON coupon
	FOR EACH ROW WHEN (NOT (
		NEW.id > 0
		AND length(NEW.name) BETWEEN 1 AND 200
		AND NEW.total_num >= 0
		AND NEW.user_limit BETWEEN 1 AND 100
		AND isfinite(NEW.begin_at) AND isfinite(NEW.end_at) AND NEW.begin_at < NEW.end_at
		AND NEW.valid_days BETWEEN 1 AND 36500
		AND isfinite(NEW.valid_from) AND isfinite(NEW.valid_to)
		AND (NEW.valid_from IS NULL) = (NEW.valid_to IS NULL)
		AND (NEW.valid_days IS NULL OR NEW.valid_from IS NULL)
		AND coalesce(NEW.valid_from < NEW.valid_to, true)
		AND NEW.status IN ('draft', 'published', 'paused', 'closed')))
	EXECUTE FUNCTION coupon_terms_check();
