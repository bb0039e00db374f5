-- Reads one coupon for an audit. Times in ms since the epoch, 0 = no bound. rejected_num excludes
-- receives that were rejected before the coupon existed: no generation counts them. idle_ms: since
-- the last outcome; NULL: none is recorded.
-- $1 coupon
SELECT status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM end_at) * 1000)::bigint, 0) AS end_ms,
	generation, seq_seen, settled_num,
	CASE WHEN outcome_at <= clock_timestamp()
		THEN floor(extract(epoch FROM clock_timestamp() - outcome_at) * 1000)::bigint
		END AS idle_ms,
	(SELECT coalesce(sum(g.settled_num), 0)::bigint FROM coupon_generation AS g
		WHERE g.coupon_id = coupon.id) AS older_settled_num,
	(SELECT count(*) FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.reason <> 'unknown_coupon') AS rejected_num,
	(SELECT count(*) FROM receive_rejected AS t WHERE t.coupon_id = coupon.id) AS tombstone_num,
	(SELECT count(*) FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.released_at IS NULL) AS unreleased_num
FROM coupon
WHERE id = $1::bigint
