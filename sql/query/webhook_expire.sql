-- Removes deliveries that failed for good so long ago, and secrets that are not valid any more.
-- $1 seconds
WITH expired AS (
	DELETE FROM webhook_secret AS s WHERE s.expires_at <= now()
)
DELETE FROM webhook_delivery AS d
WHERE d.id = ANY (ARRAY(SELECT f.id FROM webhook_delivery AS f
	WHERE f.state = 'failed' AND f.last_at < now() - $1::bigint * interval '1 s'
	LIMIT 10000 FOR UPDATE SKIP LOCKED))
