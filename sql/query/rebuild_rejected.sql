-- The rejected receives of these batches.
-- $1 coupon, $2 batches
SELECT batch, idx FROM receive_rejected WHERE coupon_id = $1::bigint AND batch = ANY ($2::uuid[])
