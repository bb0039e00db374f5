-- The users who got a coupon by a key that has a prefix, also if it was taken back; unordered, and
-- some twice. Read once, through a cursor.
-- $1 coupon, $2 prefix
SELECT user_id, key
FROM user_coupon
WHERE coupon_id = $1::bigint AND starts_with(key, $2::text)
UNION ALL
SELECT user_id, key
FROM coupon_void
WHERE coupon_id = $1::bigint AND starts_with(key, $2::text)
