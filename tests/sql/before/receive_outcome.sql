-- The outcome of one receive. No row: it is not settled.
-- $1 coupon, $2 user, $3 batch, $4 index
SELECT 'issued' AS state, slot, NULL AS reason,
	to_char(valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_from,
	to_char(valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to
FROM user_coupon
WHERE coupon_id = $1::bigint AND user_id = $2::text AND batch = $3::uuid AND idx = $4::smallint
UNION ALL
SELECT 'rejected', slot, reason, NULL, NULL
FROM receive_rejected
WHERE coupon_id = $1::bigint AND user_id = $2::text AND batch = $3::uuid AND idx = $4::smallint
LIMIT 1
