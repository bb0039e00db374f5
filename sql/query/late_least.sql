-- The last late outcome of a coupon that Redis must have counted.
-- $1 coupon
SELECT late_num - (SELECT count(*) FROM coupon_late AS l WHERE l.coupon_id = coupon.id)
FROM coupon
WHERE id = $1::bigint
