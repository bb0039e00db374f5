-- What became of campaigns, by day, for operators.

-- report_days: A row for each campaign and each day of its time zone on which something happened:
-- how many receives were issued (claimed: by a code), rejected and voided; requests refused, by
-- status; receives that orders held and used, and uses that they rolled back; the discount that
-- uses took off, and what of it was given back. A receive counts on the day of its acceptance, also
-- if it was taken back later.
-- $1 coupon (NULL: all), $2 first day, $3 last day (of both NULL: any)
WITH c AS (
	SELECT id, name, zone, currency, $2::date::timestamp AT TIME ZONE zone AS since,
		($3::date + 1)::timestamp AT TIME ZONE zone AS until
	FROM coupon WHERE $1::bigint IS NULL OR id = $1::bigint
), received AS (
	SELECT coupon_id, received_at, code FROM user_coupon
	WHERE $1::bigint IS NULL OR coupon_id = $1::bigint
	UNION ALL
	SELECT coupon_id, received_at, NULL FROM receive_rejected
	WHERE reason = 'voided' AND ($1::bigint IS NULL OR coupon_id = $1::bigint)
), change AS (
	SELECT o.coupon_id, o.at, o.from_state, o.to_state,
		CASE WHEN o.to_state = 'used' THEN coalesce(o.amount_off, 0) ELSE 0 END
			- CASE WHEN o.from_state = 'used' THEN coalesce(lag(o.amount_off)
				OVER (PARTITION BY o.coupon_id, o.batch, o.idx ORDER BY o.num), 0)
				ELSE 0 END AS off
	FROM use_operation AS o
	WHERE o.to_state IS NOT NULL AND ($1::bigint IS NULL OR o.coupon_id = $1::bigint)
), happened (coupon_id, at, what, num) AS (
	SELECT coupon_id, received_at, unnest(ARRAY['issued', 'claimed']),
		unnest(ARRAY[1, (code IS NOT NULL)::int])
	FROM received
	UNION ALL
	SELECT coupon_id, rejected_at, 'rejected', 1 FROM receive_rejected
	WHERE reason <> 'voided' AND ($1::bigint IS NULL OR coupon_id = $1::bigint)
	UNION ALL
	SELECT coupon_id, voided_at, 'voided', 1 FROM coupon_void
	WHERE $1::bigint IS NULL OR coupon_id = $1::bigint
	UNION ALL
	SELECT coupon_id, at, unnest(ARRAY['held', 'used', 'rolled_back', 'off', 'back']),
		unnest(ARRAY[(to_state = 'held' AND from_state = 'free')::int,
			(to_state = 'used' AND from_state <> 'used')::int,
			(to_state = 'free' AND from_state = 'used')::int,
			greatest(off, 0), greatest(-off, 0)])
	FROM change
), counted AS (
	SELECT c.id, (h.at AT TIME ZONE c.zone)::date AS day, h.what, sum(h.num)::bigint AS num
	FROM happened AS h JOIN c ON c.id = h.coupon_id
	WHERE h.num > 0 AND (h.at < c.since) IS NOT TRUE AND (h.at >= c.until) IS NOT TRUE
	GROUP BY 1, 2, 3
), refused AS (
	SELECT r.coupon_id AS id, r.day, sum(r.num)::bigint AS num,
		jsonb_object_agg(r.answer, r.num ORDER BY r.num DESC, r.answer) AS by_status
	FROM coupon_refusal AS r JOIN c ON c.id = r.coupon_id
	WHERE (r.day < $2::date) IS NOT TRUE AND (r.day > $3::date) IS NOT TRUE
	GROUP BY 1, 2
), told AS (
	SELECT id, day,
		coalesce(sum(num) FILTER (WHERE what = 'issued'), 0)::bigint AS issued,
		coalesce(sum(num) FILTER (WHERE what = 'claimed'), 0)::bigint AS claimed,
		coalesce(sum(num) FILTER (WHERE what = 'rejected'), 0)::bigint AS rejected,
		coalesce(sum(num) FILTER (WHERE what = 'voided'), 0)::bigint AS voided,
		coalesce(sum(num) FILTER (WHERE what = 'held'), 0)::bigint AS held,
		coalesce(sum(num) FILTER (WHERE what = 'used'), 0)::bigint AS used,
		coalesce(sum(num) FILTER (WHERE what = 'rolled_back'), 0)::bigint AS rolled_back,
		coalesce(sum(num) FILTER (WHERE what = 'off'), 0)::bigint AS discount,
		coalesce(sum(num) FILTER (WHERE what = 'back'), 0)::bigint AS discount_back
	FROM counted GROUP BY id, day
)
SELECT c.id::text AS coupon, c.name, to_char(day, 'YYYY-MM-DD') AS day,
	coalesce(t.issued, 0) AS issued, coalesce(t.claimed, 0) AS claimed,
	coalesce(r.num, 0) AS refused, coalesce(r.by_status, '{}') AS refused_by,
	coalesce(t.rejected, 0) AS rejected, coalesce(t.voided, 0) AS voided,
	coalesce(t.held, 0) AS held, coalesce(t.used, 0) AS used,
	coalesce(t.rolled_back, 0) AS rolled_back, coalesce(t.discount, 0) AS discount,
	coalesce(t.discount_back, 0) AS discount_back, c.currency
FROM told AS t FULL JOIN refused AS r USING (id, day) JOIN c USING (id)
ORDER BY c.id, day
