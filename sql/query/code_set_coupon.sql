-- The coupon of a set. No row: there is no such set.
-- $1 set
SELECT coupon_id FROM code_set WHERE id = $1::bigint
