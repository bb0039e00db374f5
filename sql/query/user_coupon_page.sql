-- A page of a user's coupons, newest first: by the time of the receive, then by coupon and slot.
-- received_us is that time in microseconds since the epoch, exactly. What is of the coupon is NULL
-- where it does not exist. It is read for each row of the page only, whatever the planner
-- estimates: with its LIMIT the subquery cannot become another kind of join.
-- $1 user, $2 $3 $4 only what comes after this time (in microseconds; NULL: all), coupon and slot,
-- $5 limit
WITH page AS MATERIALIZED (
	SELECT coupon_id, slot, batch, idx, received_at, valid_from, valid_to
	FROM user_coupon
	WHERE user_id = $1::text
		AND (received_at, coupon_id, slot) < ((SELECT coalesce(
			timestamptz 'epoch' + ($2::bigint || ' microseconds')::interval,
			'infinity')), $3::bigint, $4::smallint)
	ORDER BY received_at DESC, coupon_id DESC, slot DESC
	LIMIT $5::int
)
SELECT page.coupon_id, page.batch, page.idx, page.slot,
	EXISTS (SELECT FROM coupon_void AS v WHERE v.coupon_id = page.coupon_id
		AND v.batch = page.batch AND v.idx = page.idx) AS is_voided,
	c.name, c.currency, c.amount_off, c.percent_off, c.cap, c.threshold,
	c.metadata::text AS metadata,
	to_char(page.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS received_at,
	to_char(page.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_from,
	to_char(page.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	(extract(epoch FROM page.received_at) * 1000000)::bigint AS received_us
FROM page LEFT JOIN LATERAL (
	SELECT name, currency, amount_off, percent_off, cap, threshold, metadata
	FROM coupon WHERE id = page.coupon_id LIMIT 1
) AS c ON true
ORDER BY page.received_at DESC, page.coupon_id DESC, page.slot DESC
