-- version: 1
-- function: api_key_create(text,text,text[],bigint[],text[],timestamptz,int,bytea)
--
-- Creates a key. Returns the number of this change, or NULL: there are 10,000 keys that are not
-- revoked. An id that there was before is an error, as is anything that the table does not allow.
CREATE OR REPLACE FUNCTION api_key_create(
	id         text,
	name       text,
	roles      text[],
	coupons    bigint[],
	budgets    text[],
	expires_at timestamptz,
	rate       int,
	sha256     bytea)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	most CONSTANT int := 10000;
	made_by text := coalesce(nullif(current_setting('couponmq.by', true), ''), session_user);
	change bigint := api_key_next();
BEGIN
	-- A separate statement: it sees the keys of those that the one before has waited for.
	IF (SELECT count(*) FROM api_key AS k WHERE k.revoked_at IS NULL) >= most THEN
		RETURN NULL;
	END IF;
	INSERT INTO api_key (id, name, roles, coupons, budgets, expires_at, rate, sha256,
		version, created_by, by)
	VALUES (api_key_create.id, api_key_create.name,
		ARRAY(SELECT DISTINCT unnest(api_key_create.roles) ORDER BY 1),
		CASE WHEN api_key_create.coupons IS NOT NULL THEN
			ARRAY(SELECT DISTINCT unnest(api_key_create.coupons) ORDER BY 1) END,
		CASE WHEN api_key_create.budgets IS NOT NULL THEN
			ARRAY(SELECT DISTINCT unnest(api_key_create.budgets) ORDER BY 1) END,
		api_key_create.expires_at, api_key_create.rate, api_key_create.sha256, change,
		made_by, made_by);
	RETURN change;
END
$$;
