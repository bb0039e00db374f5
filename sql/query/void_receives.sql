-- The issued and the voided receives of one user for one coupon.
-- $1 coupon, $2 user
SELECT batch, idx FROM user_coupon WHERE coupon_id = $1::bigint AND user_id = $2::text
UNION
SELECT batch, idx FROM coupon_void WHERE coupon_id = $1::bigint AND user_id = $2::text
ORDER BY batch, idx
