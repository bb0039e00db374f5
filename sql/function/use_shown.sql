-- version: 1
-- function: use_shown(text,text,timestamptz)
--
-- What readers see of a row of receive_use; NULL: nobody has the receive. An expired hold has
-- no effect.
CREATE OR REPLACE FUNCTION use_shown(
	state    text,
	order_id text,
	until    timestamptz)
RETURNS json LANGUAGE sql STABLE
AS $$
	SELECT CASE WHEN state <> 'free' AND (until <= now()) IS NOT TRUE THEN
		json_strip_nulls(json_build_object('state', state, 'order', order_id, 'until',
			to_char(until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))) END
$$;
