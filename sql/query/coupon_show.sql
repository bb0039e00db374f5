-- One coupon as couponctl show prints it. in_flight: receives without an outcome, also those of
-- older generations, by the numbers that PostgreSQL has seen.
-- $1 coupon
SELECT id::text AS coupon, campaign_state(status, begin_at, end_at, now()) AS state,
	user_limit AS limit, name,
	to_char(begin_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS begin,
	to_char(end_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS end,
	to_char(valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_from,
	to_char(valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS updated_at,
	to_char(outcome_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS outcome_at,
	to_char(settled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS settled_at,
	to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS expires_at,
	valid_days, amount_off AS "discount.amount_off", percent_off AS "discount.percent_off",
	cap AS "discount.cap", threshold AS "discount.threshold", currency AS "discount.currency",
	metadata, void_returns, events_on AS events, status AS "postgresql.status",
	version AS "postgresql.version", total_num AS "postgresql.total",
	issued_num AS "postgresql.issued",
	(SELECT count(*) FROM receive_rejected AS t WHERE t.coupon_id = coupon.id)
		AS "postgresql.rejected",
	generation AS "postgresql.generation", seq_seen AS "postgresql.seq",
	settled_num AS "postgresql.settled",
	seq_seen - settled_num
		+ (SELECT coalesce(sum(greatest(g.seq_seen - g.settled_num, 0)), 0)::bigint
			FROM coupon_generation AS g WHERE g.coupon_id = coupon.id) AS in_flight
FROM coupon
WHERE id = $1::bigint
