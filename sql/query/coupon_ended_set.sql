-- Closes a coupon whose end has passed, unless its terms have changed since the keeper read them.
-- Closing is final and Redis' clock may be wrong, so PostgreSQL's clock is compared as well.
-- Returns whether this keeper is still elected, and whether the coupon was closed.
-- $1 coupon, $2 the version of its terms, $3 the keeper's fence
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $3::bigint FOR SHARE
), closed AS (
	UPDATE coupon
	SET status = 'closed', version = version + 1, updated_at = now()
	FROM elected
	WHERE id = $1::bigint AND status IN ('published', 'paused') AND version = $2::int
		AND end_at <= now()
	RETURNING id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM closed) AS is_closed
