-- Redeemed exchange codes: a user coupon names its code. The new column locks the table, for a
-- moment. Settling queues behind a request for this lock, so it is given up soon and requested
-- again.
DO $$
DECLARE
	holders text;
BEGIN
	PERFORM set_config('lock_timeout', '500', true);
	FOR i IN 1 .. 5 LOOP
		BEGIN
			LOCK TABLE user_coupon, receive_rejected IN ACCESS EXCLUSIVE MODE;
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
		AND l.relation IN (SELECT 'receive_rejected'::regclass
			UNION ALL SELECT relid FROM pg_partition_tree('user_coupon'));
	RAISE EXCEPTION 'user_coupon cannot be locked: it is used by the processes %',
			coalesce(holders, 'that have ended meanwhile')
		USING HINT = 'End their transactions, then run couponctl migrate again.';
END
$$;
SET LOCAL lock_timeout = 0;

-- 'SET.SERIAL' of a code for one use, which has a row in `code`; 'SET' of a word.
ALTER TABLE user_coupon ADD COLUMN code text COLLATE "C";

-- NOT VALID: the rows that exist satisfy it, because they satisfied the one before.
ALTER TABLE receive_rejected DROP CONSTRAINT receive_rejected_reason_check;
ALTER TABLE receive_rejected ADD CONSTRAINT receive_rejected_reason_check CHECK (reason IN (
	'unknown_coupon', 'slot_taken', 'slot_invalid', 'out_of_stock', 'key_taken', 'lost',
	'voided', 'code_used', 'code_invalid')) NOT VALID;

-- Loading a coupon reads these.
CREATE INDEX code_revoked ON code (set_id) WHERE state = 'revoked';
