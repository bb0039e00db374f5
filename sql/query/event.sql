-- Events, and the webhooks to which they are sent; see docs/guides/events.md and
-- docs/guides/webhooks.md.

-- event_log_lag: What waits in the event log: rows, events, the age of the oldest in ms, and its
-- size on disk; and the relays of workers that are connected, of which one publishes. A role sees
-- its own sessions.
SELECT count(*) AS rows_num, coalesce(sum(num), 0)::bigint AS events_num,
	coalesce(floor(extract(epoch FROM clock_timestamp()
			- (SELECT made_at FROM event_log ORDER BY id LIMIT 1)) * 1000), 0)::bigint
		AS age_ms,
	pg_total_relation_size('event_log') AS size_bytes,
	(SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'coupon-relay')
		AS relays_num
FROM event_log

-- event_log_read: Reads the oldest rows of the event log: at least one, and no further ones beyond
-- so many events. Rows that a transaction adds while this runs are read the next time: they are not
-- older than any row of the same coupon that is read here. The columns are known by their order to
-- events/event.c.
-- $1 rows at most, $2 events at most
SELECT l.id, floor(extract(epoch FROM l.made_at) * 1000)::bigint AS made_ms, l.type, l.num,
	l.coupon, l.batch, l.idx, l.user_id, l.slot, l.key, l.at_ms, l.reason, l.trace,
	l.valid_coupon, l.valid_at_ms, l.valid_from_ms, l.valid_days, l.valid_to_ms,
	l.history_id, l.detail::text[]
FROM (SELECT o.id, sum(o.num) OVER (ORDER BY o.id) - o.num AS before_num
		FROM (SELECT id, num FROM event_log ORDER BY id LIMIT $1::int) AS o
	) AS oldest JOIN event_log AS l ON l.id = oldest.id
WHERE oldest.before_num < $2::bigint
ORDER BY l.id

-- event_log_remove: Removes published rows of the event log; see sql/function/event_log_remove.sql.
-- $1 their ids, $2 coupons, $3 types, $4 events for webhooks
SELECT event_log_remove($1::bigint[], $2::bigint[], $3::text[], $4::text[])

-- event_webhooks: Whether events are passed on to webhooks.
SELECT EXISTS (SELECT FROM webhook WHERE state = 'enabled') AS are_wanted

-- expiring_due: Finds the next campaign with tell_before whose pass is under way or due. None while
-- 100 or more rows of the log wait: its events would grow further.
-- $1 after this id
SELECT c.id
FROM coupon AS c LEFT JOIN expiry_notice AS e ON e.coupon_id = c.id
WHERE c.id > $1::bigint AND c.tell_before IS NOT NULL AND c.events_on AND c.status <> 'draft'
	AND (e.coupon_id IS NULL OR e.pass_from IS NOT NULL OR e.next_at <= clock_timestamp()
		OR (e.before, e.valid_days, e.valid_to)
			IS DISTINCT FROM (c.tell_before * interval '1 s', c.valid_days, c.valid_to)
		OR (c.settled_at IS NOT NULL AND e.issued_num <> c.issued_num))
	AND (SELECT count(*) FROM (SELECT FROM event_log LIMIT 100) AS l) < 100
ORDER BY c.id
LIMIT 1

-- expiring_tell: A step of telling the ends of a campaign; see sql/function/expiring_tell.sql.
-- $1 coupon, $2 user coupons of a part
SELECT told_num, goes_on FROM expiring_tell($1::bigint, $2::int)

-- webhook_add: Adds a webhook. Returns its id. No row: there is no such coupon, or there are 1,000
-- webhooks.
-- $1 URL, $2 coupon (NULL: every one), $3 types, $4 events in a delivery at most, $5 deliveries in
-- the queue at most
INSERT INTO webhook (url, coupon_id, types, batch_max, queue_max, state_by, created_by)
SELECT $1::text, $2::bigint, $3::text[], $4::int, $5::int, made.by, made.by
FROM (SELECT coalesce(nullif(current_setting('couponmq.by', true), ''), session_user) AS by)
	AS made
WHERE ($2::bigint IS NULL OR EXISTS (SELECT FROM coupon AS c WHERE c.id = $2::bigint))
	AND (SELECT count(*) FROM webhook) < 1000
RETURNING id

-- webhook_lease: Takes deliveries to send; see sql/function/webhook_lease.sql.
-- $1 how many at most, $2 of one webhook at most, $3 for how many milliseconds
SELECT delivery, lease, webhook, url, secrets, message, attempts, body
FROM webhook_lease($1::int, $2::int, $3::bigint)

-- webhook_counts: The queues of all webhooks in numbers, for metrics.
SELECT count(*) FILTER (WHERE d.state = 'waiting') AS waiting_num,
	count(*) FILTER (WHERE d.state = 'failed') AS failed_num,
	coalesce(extract(epoch FROM now() - min(d.created_at) FILTER (WHERE d.state = 'waiting'))
		* 1000, 0)::bigint AS oldest_ms,
	(SELECT count(*) FROM webhook AS w WHERE w.state = 'disabled') AS disabled_num,
	(SELECT coalesce(sum(w.dropped_num), 0)::bigint FROM webhook AS w) AS dropped_num
FROM webhook_delivery AS d JOIN webhook AS w ON w.id = d.webhook_id
WHERE w.state = 'enabled' OR d.state = 'failed'

-- webhook_deliveries: The deliveries of a webhook that have not arrived, in their order.
-- $1 webhook, $2 state (NULL: any), $3 after this id, $4 how many
SELECT d.id::text AS delivery, 'msg_' || replace(d.message::text, '-', '') AS message,
	d.coupon_id::text AS coupon, d.type, d.events_num AS events,
	octet_length(d.body) AS bytes,
	CASE WHEN d.is_leased AND d.state = 'waiting' AND d.next_at > now() THEN 'sending'
		ELSE d.state END AS state,
	d.attempts,
	to_char(d.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	CASE WHEN d.state = 'waiting' THEN to_char(
		greatest(d.next_at, d.created_at) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END AS next_at,
	to_char(d.last_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS last_at,
	nullif(d.last_status, 0) AS last_status, d.last_why AS last_error
FROM webhook_delivery AS d
WHERE d.webhook_id = $1::bigint AND ($2::text IS NULL OR d.state = $2::text)
	AND d.id > $3::bigint
ORDER BY d.id
LIMIT $4::bigint

-- webhook_expire: Removes deliveries that failed for good so long ago, and secrets that are not
-- valid any more.
-- $1 seconds
WITH expired AS (
	DELETE FROM webhook_secret AS s WHERE s.expires_at <= now()
)
DELETE FROM webhook_delivery AS d
WHERE d.id = ANY (ARRAY(SELECT f.id FROM webhook_delivery AS f
	WHERE f.state = 'failed' AND f.last_at < now() - $1::bigint * interval '1 s'
	LIMIT 10000 FOR UPDATE SKIP LOCKED))

-- webhook_finish: Records the end of an attempt; see sql/function/webhook_finish.sql.
-- $1 delivery, $2 lease, $3 result, $4 status, $5 why; milliseconds: $6 until the next attempt, $7
-- of a pause that the endpoint asks for, $8 of the first own pause; $9 seconds
SELECT is_own, disabled_why
FROM webhook_finish($1::bigint, $2::int, $3::text, $4::int, $5::text, $6::bigint, $7::bigint,
	$8::bigint, $9::bigint)

-- webhook_list: Webhooks with the numbers of their queues.
-- $1 only this one (NULL: all), $2 after this id, $3 limit (NULL: none)
SELECT w.id::text AS webhook, w.url, w.coupon_id::text AS coupon, w.types, w.state,
	w.state_why AS why, w.state_by,
	to_char(w.state_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS state_at,
	w.batch_max AS batch, w.queue_max AS queue, q.waiting_num AS waiting,
	q.failed_num AS given_up, w.failures_num AS failures,
	to_char(w.failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS failing_since,
	CASE WHEN w.pause_until > now() THEN to_char(w.pause_until AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END AS paused_until,
	w.delivered_num AS delivered_events,
	to_char(w.delivered_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS delivered_at,
	w.dropped_num AS dropped_events,
	to_char(w.dropped_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS dropped_at,
	w.created_by,
	to_char(w.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at
FROM webhook AS w CROSS JOIN LATERAL (
	SELECT count(*) FILTER (WHERE d.state = 'waiting') AS waiting_num,
		count(*) FILTER (WHERE d.state = 'failed') AS failed_num
	FROM webhook_delivery AS d WHERE d.webhook_id = w.id) AS q
WHERE ($1::bigint IS NULL OR w.id = $1::bigint) AND w.id > $2::bigint
ORDER BY w.id
LIMIT $3::bigint

-- webhook_remove: Removes a webhook with its secrets and deliveries. No row: there is no such
-- webhook.
-- $1 webhook
DELETE FROM webhook WHERE id = $1::bigint
RETURNING id

-- webhook_resend: Sends deliveries again that failed for good: each has all its attempts anew.
-- $1 webhook, $2 delivery (NULL: every one of them)
UPDATE webhook_delivery
SET state = 'waiting', attempts = 0, next_at = '-infinity'
WHERE webhook_id = $1::bigint AND state = 'failed' AND ($2::bigint IS NULL OR id = $2::bigint)
RETURNING id

-- webhook_secret_add: Adds a secret; those before stay valid for so long. No row: there is no such
-- webhook, or it has four valid secrets.
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

-- webhook_secrets: The valid secrets of a webhook, the newest first.
-- $1 webhook
SELECT s.secret, s.created_by,
	to_char(s.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	to_char(s.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS expires_at
FROM webhook_secret AS s
WHERE s.webhook_id = $1::bigint AND (s.expires_at IS NULL OR s.expires_at > now())
ORDER BY s.id DESC

-- webhook_state_set: Enables or disables a webhook. Enabled, it has never failed. No row: there is
-- no such webhook.
-- $1 webhook, $2 state, $3 why (NULL: not told)
UPDATE webhook
SET state = $2::text, state_why = $3::text, state_at = now(),
	state_by = coalesce(nullif(current_setting('couponmq.by', true), ''), session_user),
	failures_num = 0, failing_since = NULL, pause_until = '-infinity'
WHERE id = $1::bigint
RETURNING id

-- webhook_wake: Has the workers look for deliveries now.
SELECT pg_notify('couponmq_webhook', '')
