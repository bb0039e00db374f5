-- A closed coupon has nothing in flight any more and needs no keeper. No row when this keeper was replaced, the coupon
-- is not closed, or it is marked already.
-- $1 coupon, $2 the keeper's fence
UPDATE coupon
SET settled_at = now()
FROM (SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE) AS elected
WHERE id = $1::bigint AND status = 'closed' AND settled_at IS NULL
RETURNING id
