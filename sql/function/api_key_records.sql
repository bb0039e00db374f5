-- version: 1
-- function: api_key_records(bigint,int)
--
-- Returns keys whose last change has a higher number than `after`, in the order of these numbers:
-- each as the JSON that Redis has (lua/keys.lua) and gateways read (common/api_keys.c).
CREATE OR REPLACE FUNCTION api_key_records(
	after bigint,
	most  int)
RETURNS TABLE (version bigint, record text)
LANGUAGE sql STABLE
SET search_path = public, pg_temp
AS $$
	SELECT k.version, row_to_json(r)::text
	FROM (SELECT * FROM api_key AS a WHERE a.version > $1 ORDER BY a.version LIMIT $2) AS k
		CROSS JOIN LATERAL (SELECT k.id, k.name, k.version, k.roles,
			k.coupons::text[] AS coupons, k.budgets,
			floor(extract(epoch FROM k.expires_at) * 1000)::bigint AS expires_ms,
			k.rate, encode(k.sha256, 'hex') AS sha256,
			CASE WHEN k.previous_sha256 IS NOT NULL THEN json_build_object(
				'sha256', encode(k.previous_sha256, 'hex'), 'until_ms',
				floor(extract(epoch FROM k.previous_until) * 1000)::bigint)
			END AS previous,
			k.revoked_at IS NOT NULL AS revoked) AS r
	ORDER BY k.version
$$;
