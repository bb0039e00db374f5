-- Sends deliveries again that failed for good: each has all its attempts anew.
-- $1 webhook, $2 delivery (NULL: every one of them)
UPDATE webhook_delivery
SET state = 'waiting', attempts = 0, next_at = now()
WHERE webhook_id = $1::bigint AND state = 'failed' AND ($2::bigint IS NULL OR id = $2::bigint)
RETURNING id
