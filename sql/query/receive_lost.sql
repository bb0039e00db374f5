-- Records receives of one coupon as lost. Returns the elements that had no outcome.
-- $1 coupon, $2 generations, $3 batches, $4 indexes, $5 users, $6 slots,
-- $7 times of acceptance (ms): arrays of one length
SELECT ord
FROM receive_lost($1::bigint, $2::int[], $3::uuid[], $4::smallint[], $5::text[], $6::smallint[],
	$7::bigint[]) AS ord
