-- Corrects the counts of a coupon, and opens a new generation.
-- $1 coupon, $2 generation in Redis, $3 generations and $4 their highest numbers in Redis: arrays
-- of one length, $5 and $6 receives without an outcome, of that generation and of older ones
SELECT coupon_recover_end($1::bigint, $2::int, $3::int[], $4::bigint[], $5::bigint, $6::bigint)
	AS generation
