-- A page of closed and settled coupons whose keys are still in Redis, to be verified after a
-- restart of Redis.
-- $1 and $2 after this time (text, exact) and id, $3 limit
SELECT id, generation, seq_seen, expires_at::text AS expires_at
FROM coupon
WHERE settled_at IS NOT NULL AND expires_at IS NOT NULL
	AND (expires_at, id) > (greatest($1::timestamptz, now()), $2::bigint)
ORDER BY expires_at, id
LIMIT $3::int
