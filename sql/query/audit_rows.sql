-- All user coupons of a coupon, in no order: to be read once, in pages of a cursor.
-- $1 coupon
SELECT user_id, slot, batch, idx, coalesce(key, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint
