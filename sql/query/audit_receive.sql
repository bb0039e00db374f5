-- The user coupons of one receive. There must be at most one.
-- $1 coupon, $2 batch, $3 index
SELECT user_id, slot, batch, idx
FROM user_coupon
WHERE coupon_id = $1::bigint AND batch = $2::uuid AND idx = $3::smallint
ORDER BY user_id, slot
