-- Declares a cursor for the user coupons of a coupon, unordered.
-- $1 coupon
DECLARE rebuild_rows NO SCROLL CURSOR FOR
SELECT user_id, slot, batch, idx, coalesce(key, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint
