-- version: 1
-- function: change_note(boolean)
--
-- Counts this transaction in one row of change_count, and returns the row and its number as
-- 'STRIPE:NUM'. Those that settle receives have rows of their own. It takes a row that no other
-- transaction has taken, and never waits: should all be taken it returns NULL, and the transaction
-- is not counted. Call it last: the row is taken until the transaction ends.
--
-- The session of couponctl recover counts nothing: PostgreSQL must stay behind Redis until its end.
CREATE OR REPLACE FUNCTION change_note(is_settled boolean) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	stripes CONSTANT int := 64;
	first   CONSTANT int := CASE WHEN is_settled THEN stripes ELSE 0 END;
	own     int;
	counted text;
BEGIN
	IF current_setting('couponmq.recovering', true) = 'on' THEN
		RETURN NULL;
	END IF;
	FOR i IN 0 .. stripes - 1 LOOP
		own := first + (pg_backend_pid() + i) % stripes;
		CONTINUE WHEN NOT pg_try_advisory_xact_lock('change_count'::regclass::int, own);
		UPDATE change_count SET num = num + 1 WHERE stripe = own
		RETURNING stripe || ':' || num INTO counted;
		RETURN counted;
	END LOOP;
	RETURN NULL;
END
$$;
