-- The numbers of settled receives of coupons, over all their generations, in the order of their
-- ids. Run every few milliseconds.
-- $1 coupons
SELECT id, total_num, issued_num, generation, settled_num AS settled_now_num,
	settled_num + (SELECT coalesce(sum(g.settled_num), 0)::bigint FROM coupon_generation AS g
		WHERE g.coupon_id = coupon.id) AS settled_num
FROM coupon
WHERE id = ANY ($1::bigint[])
ORDER BY id
