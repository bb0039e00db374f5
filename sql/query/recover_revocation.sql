-- Raises the number of the last revocation of codes to that of Redis: a rebuild must not wait for
-- revocations that PostgreSQL has lost. All that Redis has accepted, in this generation too, was
-- accepted before those that PostgreSQL has.
-- $1 coupon, $2 the number in Redis, $3 generation
WITH raised AS (
	UPDATE coupon SET revocation_num = $2::bigint
	WHERE id = $1::bigint AND revocation_num < $2::bigint
)
UPDATE code_revocation
SET generation = greatest(generation, $3::int), seq = NULL
WHERE coupon_id = $1::bigint
