-- User coupons whose coupon does not exist.
-- $1 coupon (NULL: all)
SELECT u.coupon_id, u.user_id, u.slot, u.batch, u.idx
FROM user_coupon AS u
WHERE ($1::bigint IS NULL OR u.coupon_id = $1::bigint)
	AND NOT EXISTS (SELECT FROM coupon AS c WHERE c.id = u.coupon_id)
ORDER BY u.coupon_id, u.user_id, u.slot
