-- What waits in the event log: rows, events, the age of the oldest in ms, and its size on disk; and
-- the relays of workers that are connected, of which one publishes. A role sees its own sessions.
SELECT count(*) AS rows_num, coalesce(sum(num), 0)::bigint AS events_num,
	coalesce(floor(extract(epoch FROM clock_timestamp()
			- (SELECT made_at FROM event_log ORDER BY id LIMIT 1)) * 1000), 0)::bigint
		AS age_ms,
	pg_total_relation_size('event_log') AS size_bytes,
	(SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'coupon-relay')
		AS relays_num
FROM event_log
