-- The deliveries of a webhook that have not arrived, in their order.
-- $1 webhook, $2 state (NULL: any), $3 after this id, $4 how many
SELECT d.id::text AS delivery, 'msg_' || replace(d.message::text, '-', '') AS message,
	d.coupon_id::text AS coupon, d.type, d.events_num AS events,
	octet_length(d.body) AS bytes,
	CASE WHEN d.is_leased AND d.state = 'waiting' AND d.next_at > now() THEN 'sending'
		ELSE d.state END AS state,
	d.attempts,
	to_char(d.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	CASE WHEN d.state = 'waiting' THEN to_char(d.next_at AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END AS next_at,
	to_char(d.last_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS last_at,
	nullif(d.last_status, 0) AS last_status, d.last_why AS last_error
FROM webhook_delivery AS d
WHERE d.webhook_id = $1::bigint AND ($2::text IS NULL OR d.state = $2::text)
	AND d.id > $3::bigint
ORDER BY d.id
LIMIT $4::bigint
