-- version: 1
-- function: api_key_next()
--
-- Returns the number of the next change of a key. No other transaction gets one until the end of
-- this one. Then gateways are notified.
CREATE OR REPLACE FUNCTION api_key_next() RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
DECLARE
	given bigint;
BEGIN
	UPDATE api_key_version SET num = num + 1 RETURNING num INTO STRICT given;
	PERFORM pg_notify('couponmq_keys', '');
	RETURN given;
END
$$;
