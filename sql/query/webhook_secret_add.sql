-- Adds a secret; those before stay valid for so long. No row: there is no such webhook, or it has
-- four valid secrets.
-- $1 webhook, $2 secret, $3 seconds
WITH hook AS (
	SELECT w.id FROM webhook AS w
	WHERE w.id = $1::bigint
		AND (SELECT count(*) FROM webhook_secret AS s WHERE s.webhook_id = w.id
			AND (s.expires_at IS NULL OR s.expires_at > now())
			AND $3::bigint > 0) < 4
	FOR NO KEY UPDATE OF w
), before AS (
	UPDATE webhook_secret AS s
	SET expires_at = least(s.expires_at, now() + $3::bigint * interval '1 s')
	FROM hook WHERE s.webhook_id = hook.id
)
INSERT INTO webhook_secret (webhook_id, secret, created_by)
SELECT hook.id, $2::text,
	coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
FROM hook
RETURNING id
