-- Takes an issued receive back; see sql/function/coupon_void.sql.
-- $1 coupon, $2 batch, $3 index, $4 user, $5 why (NULL: not told)
SELECT result, is_returned, slot
FROM coupon_void($1::bigint, $2::uuid, $3::smallint, $4::text, $5::text)
