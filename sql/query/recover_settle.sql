-- Settles receives that Redis holds, as sql/query/settle.sql, with its parameters.
SELECT ord, outcome, reason
FROM settle($1::bigint[], $2::int[], $3::bigint[], $4::uuid[], $5::smallint[], $6::text[],
	$7::smallint[], $8::text[], $9::text[], $10::bigint[])
