-- Closes a coupon whose end has passed, by this clock too: it is for good, and that of Redis may be wrong. And if nobody has changed
-- its terms since the keeper looked. Whether this keeper is still the elected one, and whether the coupon was closed.
-- $1 coupon, $2 the version of its terms, $3 the keeper's fence
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $3::bigint FOR SHARE
), closed AS (
	UPDATE coupon
	SET status = 'closed', version = version + 1, updated_at = now()
	FROM elected
	WHERE id = $1::bigint AND status IN ('published', 'paused') AND version = $2::int AND end_at <= now()
	RETURNING id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM closed) AS is_closed
