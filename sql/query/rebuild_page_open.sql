-- Opens a new generation of each of these coupons, in the order of their ids, and returns it. NULL:
-- as where coupon_generation_open.sql has no row.
-- $1 coupons, ascending, $2 expected generations, $3 generations in Redis (0: none): arrays of one
-- length, $4 the keeper's fence
SELECT c.id, coupon_generation_open(c.id, c.expected, c.redis, $4::bigint) AS generation
FROM unnest($1::bigint[], $2::int[], $3::int[]) WITH ORDINALITY AS c (id, expected, redis, nr)
ORDER BY c.nr
