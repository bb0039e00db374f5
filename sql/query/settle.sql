-- Settles receives: element i of the arrays, which have one length, is one receive. Returns those
-- that were not newly issued; then a row with ord 0 and as its reason the number of this
-- transaction, 'STRIPE:NUM' (NULL: it has none). That one is read last, so that its row of
-- change_count is locked for a short time only.
-- $1 coupons, $2 generations, $3 numbers of the receives, $4 batches, $5 indexes, $6 users,
-- $7 slots, $8 keys ('' = none), $9 codes ('' = none; an empty array: none at all), $10 times of
-- acceptance (ms)
SELECT ord, outcome, reason
FROM settle($1::bigint[], $2::int[], $3::bigint[], $4::uuid[], $5::smallint[], $6::text[],
	$7::smallint[], $8::text[], $9::text[], $10::bigint[])
UNION ALL SELECT 0, 'changed', change_note()
