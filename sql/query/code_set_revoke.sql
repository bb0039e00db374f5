-- Revokes a set. Returns who has revoked it and when, now or before. No row: there is no such set.
-- To be run under the lock "codes".
-- $1 set
WITH revoked AS (
	UPDATE code_set
	SET revoked_at = now(),
		revoked_by = coalesce(nullif(current_setting('couponmq.by', true), ''),
			session_user)
	WHERE id = $1::bigint AND revoked_at IS NULL
	RETURNING id, coupon_id, revoked_at, revoked_by
)
SELECT true AS is_new, coupon_id, revoked_by,
	to_char(revoked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at
FROM revoked
UNION ALL SELECT false, coupon_id, revoked_by,
	to_char(revoked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at
FROM code_set WHERE id = $1::bigint AND revoked_at IS NOT NULL
