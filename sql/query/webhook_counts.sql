-- The queues of all webhooks in numbers, for metrics.
SELECT count(*) FILTER (WHERE d.state = 'waiting') AS waiting_num,
	count(*) FILTER (WHERE d.state = 'failed') AS failed_num,
	coalesce(extract(epoch FROM now() - min(d.created_at) FILTER (WHERE d.state = 'waiting'))
		* 1000, 0)::bigint AS oldest_ms,
	(SELECT count(*) FROM webhook AS w WHERE w.state = 'disabled') AS disabled_num,
	(SELECT coalesce(sum(w.dropped_num), 0)::bigint FROM webhook AS w) AS dropped_num
FROM webhook_delivery AS d JOIN webhook AS w ON w.id = d.webhook_id
WHERE w.state = 'enabled' OR d.state = 'failed'
