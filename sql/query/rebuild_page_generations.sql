-- The counts of the older generations of coupons; generation 0 has the sums of those that are
-- folded.
-- $1 coupons
SELECT coupon_id, generation, seq_seen, settled_num
FROM coupon_generation
WHERE coupon_id = ANY ($1::bigint[])
ORDER BY coupon_id, generation
