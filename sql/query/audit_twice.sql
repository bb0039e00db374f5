-- Promise P3: one row for each receive with two outcomes.
-- $1 coupon (NULL: all)
SELECT 'issued_and_rejected' AS what, t.coupon_id::text, u.user_id::text, u.slot, t.batch, t.idx
FROM receive_rejected AS t JOIN user_coupon AS u
	ON u.coupon_id = t.coupon_id AND u.batch = t.batch AND u.idx = t.idx
WHERE $1::bigint IS NULL OR t.coupon_id = $1::bigint
UNION ALL
SELECT 'issued_twice', coupon_id::text, min(user_id)::text, min(slot), batch, idx
FROM user_coupon
WHERE $1::bigint IS NULL OR coupon_id = $1::bigint
GROUP BY coupon_id, batch, idx
HAVING count(*) > 1
ORDER BY 2, 5, 6
