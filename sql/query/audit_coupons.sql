-- A page of coupons, in the order of their ids.
-- $1 after this id, $2 limit
SELECT id
FROM coupon
WHERE id > $1::bigint
ORDER BY id
LIMIT $2::int
