-- The coupons that were loaded and that Redis does not hold.
-- $1 the coupons that it holds
SELECT c.id, c.status, c.settled_at IS NOT NULL AS is_settled
FROM coupon AS c
WHERE c.generation > 0
	AND NOT EXISTS (SELECT FROM unnest($1::bigint[]) AS r (id) WHERE r.id = c.id)
ORDER BY c.id
