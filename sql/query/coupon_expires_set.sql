-- The keys of a settled coupon expire in Redis: the keeper looks at it no more. Whether this keeper is still the elected one, and
-- whether that was recorded.
-- $1 coupon, $2 the keeper's fence, $3 milliseconds from now
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE
), recorded AS (
	UPDATE coupon
	SET expires_at = now() + $3::bigint * interval '1 ms'
	FROM elected
	WHERE id = $1::bigint AND status = 'closed' AND settled_at IS NOT NULL
	RETURNING id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM recorded) AS is_recorded
