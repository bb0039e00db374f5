-- version: 1
-- function: api_key_rotate(text,bytea,bigint)
--
-- Gives a key another secret. The one before stays valid for so many seconds; the one before that
-- is not valid any more. Returns the number of this change, or NULL: there is no such key, or it is
-- revoked or has expired.
CREATE OR REPLACE FUNCTION api_key_rotate(
	id        text,
	sha256    bytea,
	overlap_s bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	change bigint := api_key_next();
BEGIN
	UPDATE api_key AS k
	SET sha256 = api_key_rotate.sha256,
		previous_sha256 = CASE WHEN overlap_s > 0 THEN k.sha256 END,
		previous_until = CASE WHEN overlap_s > 0 THEN
			clock_timestamp() + overlap_s * interval '1 s' END,
		version = change,
		by = coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
	WHERE k.id = api_key_rotate.id AND k.revoked_at IS NULL
		AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());
	RETURN CASE WHEN FOUND THEN change END;
END
$$;
