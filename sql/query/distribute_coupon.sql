-- The state of a coupon that is to be distributed.
-- $1 coupon
SELECT status, issued_num FROM coupon WHERE id = $1::bigint
