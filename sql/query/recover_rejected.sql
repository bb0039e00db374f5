-- See the function.
-- $1 coupon, $2 batches, $3 indexes, $4 users, $5 slots, $6 reasons, $7 times of acceptance (ms),
-- $8 whether they hold a slot (1, 0): arrays of one length
SELECT ord
FROM coupon_recover_rejected($1::bigint, $2::uuid[], $3::smallint[], $4::text[], $5::smallint[],
	$6::text[], $7::bigint[], $8::smallint[]) AS ord
