-- Promise P2: one row for each user with more coupons than the limit, or with a slot outside 1 to
-- the limit.
-- $1 coupon (NULL: all)
SELECT u.coupon_id::text, u.user_id::text, c.user_limit, count(*) AS row_num,
	min(u.slot) AS slot_min, max(u.slot) AS slot_max
FROM user_coupon AS u JOIN coupon AS c ON c.id = u.coupon_id
WHERE $1::bigint IS NULL OR u.coupon_id = $1::bigint
GROUP BY u.coupon_id, u.user_id, c.user_limit
HAVING count(*) > c.user_limit OR min(u.slot) < 1 OR max(u.slot) > c.user_limit
ORDER BY u.coupon_id, u.user_id
