-- Whether a coupon has exchange codes.
-- $1 coupon
SELECT EXISTS (SELECT FROM code_set WHERE coupon_id = $1::bigint) AS has_codes
