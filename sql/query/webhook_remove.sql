-- Removes a webhook with its secrets and deliveries. No row: there is no such webhook.
-- $1 webhook
DELETE FROM webhook WHERE id = $1::bigint
RETURNING id
