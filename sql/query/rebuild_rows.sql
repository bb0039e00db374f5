-- Declares a cursor for the user coupons of a coupon, unordered; `key` as in a record of Redis,
-- with a tab and the code if one was redeemed.
-- $1 coupon
DECLARE rebuild_rows NO SCROLL CURSOR FOR
SELECT user_id, slot, batch, idx, coalesce(key, '') || coalesce(E'\t' || code, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint
