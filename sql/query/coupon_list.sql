-- A page of all coupons, in the order of their ids.
-- $1 after this id, $2 limit
SELECT id::text AS coupon, name, status, campaign_state(status, begin_at, end_at, now()) AS state,
	total_num AS total, issued_num AS issued, user_limit AS limit,
	to_char(begin_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS begin,
	to_char(end_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS end
FROM coupon
WHERE id > $1::bigint
ORDER BY id
LIMIT $2::int
