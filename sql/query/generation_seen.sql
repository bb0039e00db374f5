-- Stores the highest numbers of older generations that Redis has.
-- $1 coupon, $2 generations and $3 numbers: arrays of one length
UPDATE coupon_generation AS g
SET seq_seen = seen.seq
FROM unnest($2::int[], $3::bigint[]) AS seen (generation, seq)
WHERE g.coupon_id = $1::bigint AND g.generation = seen.generation AND g.seq_seen < seen.seq
