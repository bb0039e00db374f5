-- The number of settled receives of a coupon, over all its generations. Run every few milliseconds.
-- $1 coupon
SELECT total_num, issued_num, user_limit, generation, settled_num AS settled_now_num,
	settled_num + (SELECT coalesce(sum(g.settled_num), 0)::bigint FROM coupon_generation AS g
		WHERE g.coupon_id = coupon.id) AS settled_num
FROM coupon
WHERE id = $1::bigint
