-- Records when the keys of a settled coupon expire in Redis. The keeper's sweeps then skip the
-- coupon. Returns whether this keeper is still elected, and whether the time was recorded.
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
