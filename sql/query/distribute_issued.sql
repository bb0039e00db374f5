-- The user coupons of a coupon whose key has a prefix, unordered. Read once, through a cursor.
-- $1 coupon, $2 prefix
SELECT user_id, key
FROM user_coupon
WHERE coupon_id = $1::bigint AND starts_with(key, $2::text)
