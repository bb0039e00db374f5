-- Asks the keeper for a rebuild, and wakes it: the number of this request. No row: no such coupon, or nothing to rebuild.
-- $1 coupon
WITH asked AS (
	UPDATE coupon SET rebuild_asked = rebuild_asked + 1
	WHERE id = $1::bigint AND status <> 'draft' AND settled_at IS NULL
	RETURNING id, rebuild_asked
)
SELECT rebuild_asked, pg_notify('couponmq_terms', id::text) FROM asked
