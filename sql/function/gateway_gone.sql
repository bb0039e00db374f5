-- version: 1
-- function: gateway_gone(uuid)
--
-- A gateway process ends.
CREATE OR REPLACE FUNCTION gateway_gone(id uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	UPDATE gateway SET gone_at = now() WHERE gateway.id = gateway_gone.id;
END
$$;
