-- The whole row of a coupon, to be copied to Redis.
-- $1 coupon
SELECT version, to_jsonb(c)::text AS terms FROM coupon AS c WHERE id = $1::bigint
