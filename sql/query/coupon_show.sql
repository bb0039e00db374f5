-- Reads one coupon for display. older_unsettled_num: receives of older generations
-- without an outcome, by the numbers that PostgreSQL has seen.
-- $1 coupon
SELECT id::text, name, status, campaign_state(status, begin_at, end_at, now()) AS state,
	total_num, issued_num, user_limit,
	to_char(begin_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS begin_at,
	to_char(end_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS end_at,
	valid_days,
	to_char(valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_from,
	to_char(valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	currency, amount_off, percent_off, cap, threshold, metadata::text, void_returns, events_on,
	version, generation, seq_seen, settled_num,
	(SELECT coalesce(sum(greatest(g.seq_seen - g.settled_num, 0)), 0)::bigint
		FROM coupon_generation AS g WHERE g.coupon_id = coupon.id) AS older_unsettled_num,
	(SELECT count(*) FROM receive_rejected AS t WHERE t.coupon_id = coupon.id) AS rejected_num,
	(SELECT count(*) FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.released_at IS NULL) AS unreleased_num,
	to_char(outcome_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS outcome_at,
	to_char(settled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS settled_at,
	to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS expires_at,
	to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS updated_at
FROM coupon
WHERE id = $1::bigint
