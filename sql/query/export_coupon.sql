-- How many user coupons a coupon has.
-- $1 coupon
SELECT issued_num FROM coupon WHERE id = $1::bigint
