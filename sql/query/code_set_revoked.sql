-- Who has revoked a set, and when.
-- $1 set
SELECT id::text AS set, coupon_id::text AS coupon, revoked_by,
	to_char(revoked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at
FROM code_set WHERE id = $1::bigint AND revoked_at IS NOT NULL
