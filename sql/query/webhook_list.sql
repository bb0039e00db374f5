-- Webhooks with the numbers of their queues, in pages.
-- $1 after this id, $2 how many, $3 only this one (NULL: all)
SELECT w.id, w.url, w.coupon_id, array_to_string(w.types, ',') AS types, w.batch_max, w.queue_max,
	w.state, w.state_why, w.state_by, w.created_by, w.failures_num, w.delivered_num,
	w.dropped_num, q.waiting_num, q.failed_num,
	to_char(w.state_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS state_at,
	to_char(w.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	to_char(w.failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS failing_since,
	CASE WHEN w.pause_until > now() THEN to_char(w.pause_until AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END AS pause_until,
	to_char(w.delivered_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS delivered_at,
	to_char(w.dropped_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS dropped_at
FROM webhook AS w CROSS JOIN LATERAL (
	SELECT count(*) FILTER (WHERE d.state = 'waiting') AS waiting_num,
		count(*) FILTER (WHERE d.state = 'failed') AS failed_num
	FROM webhook_delivery AS d WHERE d.webhook_id = w.id) AS q
WHERE w.id > $1::bigint AND ($3::bigint IS NULL OR w.id = $3::bigint)
ORDER BY w.id
LIMIT $2::bigint
