-- The whole rows of coupons, to be copied to Redis.
-- $1 coupons
SELECT id, version, to_jsonb(c)::text AS terms
FROM coupon AS c
WHERE id = ANY ($1::bigint[])
ORDER BY id
