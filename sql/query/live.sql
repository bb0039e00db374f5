-- What coupon-admin tells those who look, once a second.

-- live_campaigns: Campaigns as they are at this moment.
-- $1 coupons
SELECT id::text AS coupon, name,
	campaign_state(status, begin_at, least(end_at, valid_to), now()) AS state, version,
	total_num AS total, issued_num AS issued, user_limit AS limit,
	to_char(begin_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS begin,
	to_char(end_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS end,
	to_char(outcome_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS outcome_at,
	generation, seq_seen AS seq,
	(SELECT jsonb_object_agg(r.answer, r.num ORDER BY r.num DESC)
		FROM (SELECT answer, sum(num)::bigint AS num FROM coupon_refusal
			WHERE coupon_id = coupon.id GROUP BY answer) AS r) AS refused,
	seq_seen - settled_num
		+ (SELECT coalesce(sum(greatest(g.seq_seen - g.settled_num, 0)), 0)::bigint
			FROM coupon_generation AS g WHERE g.coupon_id = coupon.id) AS in_flight
FROM coupon
WHERE id = ANY ($1::bigint[])
ORDER BY id

-- live_near: The active campaigns: their last outcome, change, begin or end is closest to now.
-- $1 limit
SELECT id
FROM coupon
ORDER BY least(abs(extract(epoch FROM now() - outcome_at)),
	abs(extract(epoch FROM now() - updated_at)), abs(extract(epoch FROM now() - begin_at)),
	abs(extract(epoch FROM now() - least(end_at, valid_to)))), id
LIMIT $1::int

-- live_states: How many campaigns there are, by state; one that has issued all is sold_out.
SELECT CASE WHEN s.state = 'issuing' AND issued_num >= total_num THEN 'sold_out' ELSE s.state END
	AS state, count(*) AS n
FROM coupon, campaign_state(status, begin_at, least(end_at, valid_to), now()) AS s (state)
GROUP BY 1
