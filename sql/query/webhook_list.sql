-- Webhooks with the numbers of their queues, in pages.
-- $1 after this id, $2 how many, $3 only this one (NULL: all)
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
WHERE w.id > $1::bigint AND ($3::bigint IS NULL OR w.id = $3::bigint)
ORDER BY w.id
LIMIT $2::bigint
