-- The counts of the older generations of a coupon.
-- $1 coupon
SELECT generation, seq_seen, settled_num
FROM coupon_generation
WHERE coupon_id = $1::bigint
ORDER BY generation
