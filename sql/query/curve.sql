-- The curves of coupons: how their sales went.

-- curve_add: Adds a row to the curve of each of these coupons, with what Redis has now, unless it
-- would equal the last one, or comes too early after it. One of a closed coupon, which may be its
-- last, comes too early only if nothing but refusals were added. Nobody waits until the rows are on
-- disk or on a standby. Returns of each coupon whether its last row is as it is now, and for how
-- many milliseconds no other one will be added.
-- $1 coupons, $2 totals, $3 stocks, $4 taken: arrays of one length, $5 the keeper's fence
WITH found AS (
	SELECT r.*, c.issued_num, o.rejected_num, f.refused_num, l.num,
		c.status = 'closed' AS is_closed,
		CASE WHEN l.num IS NULL
			THEN (r.taken_num, c.issued_num, o.rejected_num) = (0, 0, 0)
			ELSE (r.total_num, r.stock_num, r.taken_num) = (l.total_num, l.stock_num,
				l.taken_num) AND (c.issued_num, o.rejected_num) = (l.issued_num,
				l.rejected_num)
			END AS is_sold_told,
		f.refused_num = coalesce(l.refused_num, 0) AS is_refused_told,
		-- The keeper's rounds are not exact to the millisecond.
		coalesce(extract(epoch FROM l.at - now() + CASE
			WHEN l.num < 600 THEN interval '0.9 s'
			WHEN l.num < 10000 THEN interval '1 min'
			ELSE interval '1 h' END) * 1000, 0) AS wait_ms
	FROM keeper AS k, unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
			AS r (coupon_id, total_num, stock_num, taken_num)
		JOIN coupon AS c ON c.id = r.coupon_id
		-- Every outcome that is not issued.
		CROSS JOIN LATERAL (
			SELECT greatest(0, c.settled_num + coalesce(sum(g.settled_num), 0)
				- c.issued_num)::bigint AS rejected_num
			FROM coupon_generation AS g WHERE g.coupon_id = c.id) AS o
		CROSS JOIN LATERAL (
			SELECT coalesce(sum(a.num), 0)::bigint AS refused_num
			FROM coupon_refusal AS a WHERE a.coupon_id = c.id) AS f
		LEFT JOIN LATERAL (
			SELECT * FROM coupon_curve AS all_of WHERE all_of.coupon_id = c.id
			ORDER BY all_of.num DESC LIMIT 1) AS l ON true
	WHERE k.fence = $5::bigint
), added AS (
	INSERT INTO coupon_curve (coupon_id, num, total_num, stock_num, taken_num, issued_num,
		rejected_num, refused_num)
	SELECT coupon_id, coalesce(num, 0) + 1, total_num, stock_num, taken_num, issued_num,
		rejected_num, refused_num
	FROM found
	WHERE (NOT is_sold_told AND is_closed
			OR NOT (is_sold_told AND is_refused_told) AND wait_ms <= 0)
		AND set_config('synchronous_commit', 'off', true) = 'off'
	ON CONFLICT DO NOTHING
	RETURNING coupon_id
)
SELECT coupon_id,
	is_sold_told AND is_refused_told OR coupon_id IN (SELECT a.coupon_id FROM added AS a)
		AS is_told,
	greatest(wait_ms, 0)::bigint AS wait_ms
FROM found

-- curve_expire: Removes rows that are older than 400 days; at most 100,000.
DELETE FROM coupon_curve
WHERE (coupon_id, num) IN (SELECT coupon_id, num FROM coupon_curve
	WHERE at < now() - interval '400 days' LIMIT 100000)

-- curve_rows: The curve of a coupon.
-- $1 coupon, $2 after this row, $3 limit
SELECT num, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at,
	total_num AS total, stock_num AS stock, taken_num AS taken, issued_num AS issued,
	rejected_num AS rejected, refused_num AS refused
FROM coupon_curve
WHERE coupon_id = $1::bigint AND num > $2::int
ORDER BY num
LIMIT $3::bigint

-- refusal_add: Adds refusals to those that are counted. Nobody waits for it, as above.
-- $1 coupons, $2 statuses of answers, $3 numbers: arrays of one length, $4 the keeper's fence
INSERT INTO coupon_refusal AS r (coupon_id, day, answer, num)
SELECT a.coupon_id, (now() AT TIME ZONE c.zone)::date, a.answer, a.num
FROM keeper AS k, unnest($1::bigint[], $2::text[], $3::bigint[]) AS a (coupon_id, answer, num)
	JOIN coupon AS c ON c.id = a.coupon_id
WHERE k.fence = $4::bigint AND set_config('synchronous_commit', 'off', true) = 'off'
ORDER BY a.coupon_id, a.answer
ON CONFLICT (coupon_id, day, answer) DO UPDATE SET num = r.num + excluded.num
