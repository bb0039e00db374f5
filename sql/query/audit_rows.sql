-- All user coupons of a coupon, unordered. Read once, through a cursor.
-- $1 coupon
SELECT user_id, slot, batch, idx, coalesce(key, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint
