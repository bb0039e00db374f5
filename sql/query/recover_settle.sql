-- Settles receives of one coupon and generation that Redis holds, as sql/query/settle.sql.
-- $1 coupon, $2 generation, $3 number of each receive, $4 batches, $5 indexes, $6 users, $7 slots,
-- $8 keys ('' = none), $9 codes ('' = none), $10 times of acceptance (ms)
SELECT ord, outcome, reason
FROM settle(array_fill($1::bigint, ARRAY[cardinality($4::uuid[])]),
	array_fill($2::int, ARRAY[cardinality($4::uuid[])]),
	array_fill($3::bigint, ARRAY[cardinality($4::uuid[])]), $4::uuid[], $5::smallint[],
	$6::text[], $7::smallint[], $8::text[], $9::text[], $10::bigint[])
