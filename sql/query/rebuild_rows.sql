-- The taken slots of a coupon, in no order.
-- $1 coupon
DECLARE rebuild_rows NO SCROLL CURSOR FOR
SELECT user_id, slot, batch, idx, coalesce(key, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint
