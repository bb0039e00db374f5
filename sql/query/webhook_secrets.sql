-- The valid secrets of a webhook, the newest first.
-- $1 webhook
SELECT s.secret, s.created_by,
	to_char(s.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	to_char(s.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS expires_at
FROM webhook_secret AS s
WHERE s.webhook_id = $1::bigint AND (s.expires_at IS NULL OR s.expires_at > now())
ORDER BY s.id DESC
