-- The user coupons of coupons that have few; `key` as in a record of Redis, with a tab and the code
-- if one was redeemed.
-- $1 coupons
SELECT coupon_id, user_id, slot, batch, idx, coalesce(key, '') || coalesce(E'\t' || code, '') AS key
FROM user_coupon
WHERE coupon_id = ANY ($1::bigint[])
ORDER BY coupon_id
