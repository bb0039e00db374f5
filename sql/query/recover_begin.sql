-- Returns the generation in which the receives of a coupon are to be settled; NULL: PostgreSQL does
-- not have the coupon.
-- $1 coupon, $2 generation in Redis
SELECT coupon_recover_begin($1::bigint, $2::int) AS generation
