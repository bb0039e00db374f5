-- The number of the last revocation of codes of a coupon.
-- $1 coupon
SELECT revocation_num FROM coupon WHERE id = $1::bigint
