-- Reads the oldest rows of the event log: at least one, and no further ones beyond so many events.
-- Rows that a transaction adds while this runs are read the next time: they are not older than any
-- row of the same coupon that is read here.
-- events/row.c knows the columns by their order.
-- $1 rows at most, $2 events at most
SELECT l.id, floor(extract(epoch FROM l.made_at) * 1000)::bigint AS made_ms, l.type, l.num,
	l.coupon, l.batch, l.idx, l.user_id, l.slot, l.key, l.at_ms, l.reason, l.valid_coupon,
	l.valid_at_ms, l.valid_from_ms, l.valid_days, l.valid_to_ms, l.history_id, l.detail::text
FROM (SELECT o.id, sum(o.num) OVER (ORDER BY o.id) - o.num AS before_num
		FROM (SELECT id, num FROM event_log ORDER BY id LIMIT $1::int) AS o
	) AS oldest JOIN event_log AS l ON l.id = oldest.id
WHERE oldest.before_num < $2::bigint
ORDER BY l.id
