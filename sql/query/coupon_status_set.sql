-- Changes the status of a coupon: draft to published, published to paused and back, either to
-- closed. Returns the resulting status, which differs from the wanted one if that change is not
-- allowed. No row: no such coupon.
-- $1 coupon, $2 wanted status
WITH old AS (
	SELECT id, status, version FROM coupon WHERE id = $1::bigint FOR NO KEY UPDATE
), moved AS (
	UPDATE coupon
	SET status = $2::text, version = coupon.version + 1, updated_at = now()
	FROM old
	WHERE coupon.id = old.id
		AND (old.status, $2::text) IN (('draft', 'published'), ('published', 'paused'),
			('paused', 'published'), ('published', 'closed'), ('paused', 'closed'))
	RETURNING coupon.id, coupon.status, coupon.version
)
SELECT old.id::text, old.status AS old_status, coalesce(moved.status, old.status) AS status,
	coalesce(moved.version, old.version) AS version
FROM old LEFT JOIN moved ON moved.id = old.id
