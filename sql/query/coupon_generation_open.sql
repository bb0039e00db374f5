-- Opens a new generation and returns its number. No row: another keeper was elected, or the
-- generation is not the expected one.
-- $1 coupon, $2 expected generation, $3 generation in Redis (0: none), $4 the keeper's fence
SELECT generation
FROM coupon_generation_open($1::bigint, $2::int, $3::int, $4::bigint) AS generation
WHERE generation IS NOT NULL
