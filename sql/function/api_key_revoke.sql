-- version: 1
-- function: api_key_revoke(text)
--
-- Revokes a key for ever. Returns whether there is such a key; one that is revoked already does not
-- change.
CREATE OR REPLACE FUNCTION api_key_revoke(id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	change bigint := api_key_next();
BEGIN
	UPDATE api_key AS k
	SET revoked_at = now(), version = change,
		by = coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
	WHERE k.id = api_key_revoke.id AND k.revoked_at IS NULL;
	RETURN FOUND OR EXISTS (SELECT FROM api_key AS k WHERE k.id = api_key_revoke.id);
END
$$;
