-- A page of all coupons, in the order of their ids.
-- $1 after this id, $2 limit
SELECT id::text, name, status, campaign_state(status, begin_at, end_at, now()) AS state,
	total_num, issued_num, user_limit,
	to_char(begin_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS begin_at,
	to_char(end_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS end_at
FROM coupon
WHERE id > $1::bigint
ORDER BY id
LIMIT $2::int
