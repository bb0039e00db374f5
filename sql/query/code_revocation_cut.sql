-- Records which receives were accepted before revocations: those up to the generation and number
-- that Redis had when it had all of these revocations.
-- $1 coupon, $2 above this revocation, $3 up to this one, $4 generation, $5 seq
UPDATE code_revocation
SET generation = $4::int, seq = $5::bigint
WHERE coupon_id = $1::bigint AND num > $2::bigint AND num <= $3::bigint AND seq IS NULL
	AND generation >= $4::int
