-- version: 1
-- function: gateway_alive(uuid,text,boolean)
--
-- A gateway process is there: it calls this every 5 s. `is_new`: it has not been recorded since its
-- start. Then the process that was at its place before is gone, because it was killed, unless it
-- calls again within 7 s. After 24 h of silence a process is gone, and 24 h later its row is
-- removed.
CREATE OR REPLACE FUNCTION gateway_alive(id uuid, place text, is_new boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	-- What a crash loses is written again over the next connection. The gateway's look-ups wait
	-- for this call: it must not wait for a standby.
	PERFORM set_config('synchronous_commit', 'off', true);
	INSERT INTO gateway AS g (id, place) VALUES (gateway_alive.id, gateway_alive.place)
	ON CONFLICT ON CONSTRAINT gateway_pkey
	DO UPDATE SET place = excluded.place, seen_at = now(), gone_at = NULL;
	UPDATE gateway SET gone_at = CASE WHEN gateway.place = gateway_alive.place
		THEN now() + interval '7 seconds' ELSE now() END
	WHERE gateway.id IN (
		SELECT g.id FROM gateway AS g
		WHERE g.gone_at IS NULL AND g.id <> gateway_alive.id
			AND (g.seen_at < now() - interval '24 hours'
				OR (is_new AND g.place = gateway_alive.place))
		FOR UPDATE SKIP LOCKED);
	DELETE FROM gateway
	WHERE gateway.id IN (
		SELECT g.id FROM gateway AS g WHERE g.gone_at < now() - interval '24 hours'
		FOR UPDATE SKIP LOCKED);
END
$$;
