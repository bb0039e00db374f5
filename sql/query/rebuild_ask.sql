-- Requests a rebuild, notifies the keeper, and returns the number of the request. No row: there is
-- no such coupon, or it cannot be rebuilt.
-- $1 coupon
WITH asked AS (
	UPDATE coupon SET rebuild_asked = rebuild_asked + 1
	WHERE id = $1::bigint AND status <> 'draft' AND settled_at IS NULL
	RETURNING id, rebuild_asked
)
SELECT rebuild_asked, pg_notify('couponmq_terms', id::text) FROM asked
