-- The state of a coupon, and how many user coupons it has.
-- $1 coupon
SELECT status, issued_num FROM coupon WHERE id = $1::bigint
