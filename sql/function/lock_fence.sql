-- version: 1
-- function: lock_fence()
--
-- The fence of one more grant of a lock: higher than every one before, also than those that were
-- given before PostgreSQL was put back to an earlier moment. So the sequence keeps up with the
-- clock in microseconds, within a second: nobody puts a database back in less.
CREATE OR REPLACE FUNCTION lock_fence() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
DECLARE
	fence bigint := nextval('lock_fence_seq');
	now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
	IF fence > now_us - 1000000 THEN
		RETURN fence;
	END IF;
	-- One after the other, or an earlier time would be set after a later one.
	PERFORM pg_advisory_xact_lock('lock_fence_seq'::regclass::int, 0);
	fence := nextval('lock_fence_seq');
	IF fence <= now_us - 1000000 THEN
		fence := setval('lock_fence_seq', now_us);
	END IF;
	RETURN fence;
END
$$;
