-- Enables or disables a webhook. Enabled, it has never failed. No row: there is no such webhook.
-- $1 webhook, $2 state, $3 why (NULL: not told)
UPDATE webhook
SET state = $2::text, state_why = $3::text, state_at = now(),
	state_by = coalesce(nullif(current_setting('couponmq.by', true), ''), session_user),
	failures_num = 0, failing_since = NULL, pause_until = '-infinity'
WHERE id = $1::bigint
RETURNING id
