-- version: 1
-- function: user_id_equals(text,bigint)
--
-- `user_id = number`, as the programs of the version before ask for a user. The body is inlined, so
-- that such a query uses the index.
CREATE OR REPLACE FUNCTION user_id_equals(user_id text, number bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
	SELECT user_id = number::text
$$;

DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_operator WHERE oprcode = 'user_id_equals'::regproc) THEN
		CREATE OPERATOR = (LEFTARG = text, RIGHTARG = bigint, FUNCTION = user_id_equals);
	END IF;
END
$$;
