-- Receives and their outcomes.

-- lost_candidates: The positions of those receives of one coupon that have no outcome.
-- $1 coupon, $2 users, $3 slots, $4 batches, $5 indexes: arrays of one length
SELECT r.ord
FROM unnest($2::text[], $3::smallint[], $4::uuid[], $5::smallint[])
		WITH ORDINALITY AS r (user_id, slot, batch, idx, ord)
WHERE (SELECT true FROM user_coupon AS u
		WHERE u.user_id = r.user_id AND u.coupon_id = $1::bigint AND u.slot = r.slot
			AND u.batch = r.batch AND u.idx = r.idx
		LIMIT 1) IS NULL
	AND (SELECT true FROM receive_rejected AS t
		WHERE t.coupon_id = $1::bigint AND t.batch = r.batch AND t.idx = r.idx
		LIMIT 1) IS NULL
ORDER BY r.ord

-- receive_lost: Records receives of one coupon as lost. Returns the elements that had no outcome.
-- $1 coupon, $2 generations, $3 batches, $4 indexes, $5 users, $6 slots,
-- $7 times of acceptance (ms): arrays of one length
SELECT ord
FROM receive_lost($1::bigint, $2::int[], $3::uuid[], $4::smallint[], $5::text[], $6::smallint[],
	$7::bigint[]) AS ord

-- receive_committed: The outcomes of receives, for ack=issued: a row, in their order, for each one
-- that is settled. A COMMIT whose wait for a synchronous standby was cancelled is visible here. So
-- this transaction writes something if it finds any, and there are such standbys: its own COMMIT
-- waits until they have all that was before it.
-- $1 coupons, $2 users, $3 batches, $4 indexes: arrays of one length
SELECT r.ord, o.state, o.reason,
	-- once, not in each row
	(SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
				AND NOT pg_is_in_recovery()
			THEN pg_logical_emit_message(true, 'couponmq', '') END) AS waits_for
FROM unnest($1::bigint[], $2::text[], $3::uuid[], $4::smallint[])
		WITH ORDINALITY AS r (coupon_id, user_id, batch, idx, ord)
CROSS JOIN LATERAL (
	SELECT 'rejected' AS state, 'voided' AS reason
	FROM coupon_void AS v
	WHERE v.coupon_id = r.coupon_id AND v.user_id = r.user_id AND v.batch = r.batch
		AND v.idx = r.idx
	UNION ALL
	SELECT 'issued', NULL
	FROM user_coupon AS u
	WHERE u.coupon_id = r.coupon_id AND u.user_id = r.user_id AND u.batch = r.batch
		AND u.idx = r.idx
	UNION ALL
	SELECT 'rejected', t.reason
	FROM receive_rejected AS t
	WHERE t.coupon_id = r.coupon_id AND t.user_id = r.user_id AND t.batch = r.batch
		AND t.idx = r.idx
	LIMIT 1
) AS o
ORDER BY r.ord

-- receive_operations: What orders did with one receive, in order; the latest 1,000.
-- $1 coupon, $2 user, $3 batch, $4 index
SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at, by_key AS by, action,
	key, order_id AS order, result, from_state AS from, to_state AS to,
	to_char(until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS until,
	amount, currency, amount_off, budget, reason
FROM (
	SELECT * FROM use_operation
	WHERE coupon_id = $1::bigint AND user_id = $2::text AND batch = $3::uuid
		AND idx = $4::smallint
	ORDER BY num DESC LIMIT 1000
) AS o
ORDER BY num

-- receive_place: Where a user coupon is in user_coupon_page.
-- $1 coupon, $2 user, $3 batch, $4 index
SELECT slot, (extract(epoch FROM received_at) * 1000000)::bigint AS received_us
FROM user_coupon
WHERE coupon_id = $1::bigint AND user_id = $2::text AND batch = $3::uuid AND idx = $4::smallint

-- receive_outcome: The outcomes of receives, and which order has each. A row, in their order, for
-- each one that is settled.
-- $1 coupons, $2 users, $3 batches, $4 indexes: arrays of one length
SELECT r.ord, o.state, o.slot, o.reason, o.valid_from, o.valid_to, o.use
FROM unnest($1::bigint[], $2::text[], $3::uuid[], $4::smallint[])
		WITH ORDINALITY AS r (coupon_id, user_id, batch, idx, ord)
CROSS JOIN LATERAL (
	SELECT 'rejected' AS state, v.slot, 'voided' AS reason, NULL AS valid_from,
		NULL AS valid_to, NULL::json AS use
	FROM coupon_void AS v
	WHERE v.coupon_id = r.coupon_id AND v.user_id = r.user_id AND v.batch = r.batch
		AND v.idx = r.idx
	UNION ALL
	SELECT 'issued', u.slot, NULL,
		to_char(u.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
		to_char(u.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
		(SELECT use_shown(s.state, s.order_id, s.until) FROM receive_use AS s
			WHERE s.coupon_id = r.coupon_id AND s.batch = r.batch AND s.idx = r.idx)
	FROM user_coupon AS u
	WHERE u.coupon_id = r.coupon_id AND u.user_id = r.user_id AND u.batch = r.batch
		AND u.idx = r.idx
	UNION ALL
	SELECT 'rejected', t.slot, t.reason, NULL, NULL, NULL
	FROM receive_rejected AS t
	WHERE t.coupon_id = r.coupon_id AND t.user_id = r.user_id AND t.batch = r.batch
		AND t.idx = r.idx
	LIMIT 1
) AS o
ORDER BY r.ord

-- receive_trace: All that PostgreSQL has of one receive; one row, whatever there is. The receive
-- with a void that kept its slot has a row of user_coupon, too.
-- $1 coupon, $2 user, $3 batch, $4 index
SELECT CASE WHEN v.batch IS NOT NULL THEN 'rejected' WHEN u.batch IS NOT NULL THEN 'issued'
		WHEN t.batch IS NOT NULL THEN 'rejected' END AS "postgresql.state",
	CASE WHEN v.batch IS NOT NULL THEN 'voided' ELSE t.reason END AS "postgresql.reason",
	coalesce(u.slot, t.slot) AS "postgresql.slot", u.key AS "postgresql.key",
	u.code AS "postgresql.code",
	to_char(coalesce(u.received_at, t.received_at) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "postgresql.received_at",
	to_char(u.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS "postgresql.valid_from",
	to_char(u.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS "postgresql.valid_to",
	to_char(t.rejected_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS "postgresql.rejected_at",
	to_char(t.freed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
		AS "postgresql.freed_at",
	s.state AS "use.state", s.order_id AS "use.order",
	to_char(s.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "use.until",
	to_char(v.voided_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "void.at",
	v.voided_by AS "void.by", v.why AS "void.why", v.is_returned AS "void.returned",
	coalesce(c.events_on, false) AS "events.on",
	(SELECT coalesce(jsonb_agg(jsonb_build_object('type', l.type, 'made_at',
			to_char(l.made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
			ORDER BY l.id), '[]')
		FROM event_log AS l
		WHERE $1::bigint = ANY (l.coupon) AND EXISTS (
			SELECT FROM unnest(l.batch, l.idx) AS e (batch, idx)
			WHERE e.batch = $3::uuid AND e.idx = $4::smallint)) AS "events.waiting",
	t.trace
FROM (SELECT) AS asked
LEFT JOIN coupon AS c ON c.id = $1::bigint
LEFT JOIN user_coupon AS u ON u.user_id = $2::text AND u.coupon_id = $1::bigint
	AND u.batch = $3::uuid AND u.idx = $4::smallint
LEFT JOIN receive_rejected AS t ON t.coupon_id = $1::bigint AND t.batch = $3::uuid
	AND t.idx = $4::smallint AND t.user_id = $2::text
LEFT JOIN coupon_void AS v ON v.coupon_id = $1::bigint AND v.batch = $3::uuid
	AND v.idx = $4::smallint AND v.user_id = $2::text
LEFT JOIN receive_use AS s ON s.coupon_id = $1::bigint AND s.batch = $3::uuid
	AND s.idx = $4::smallint AND s.user_id = $2::text AND s.state <> 'free'
	AND (s.until <= now()) IS NOT TRUE

-- receive_webhooks: The webhooks that are told of a coupon, each with the deliveries that have an
-- event of one receive. Those that have arrived are not there any more; of the others the latest
-- 10,000 of each webhook are looked at.
-- $1 coupon, $2 how the ids of its events begin, with a quote: '"BATCH.INDEX/'
SELECT w.id::text AS webhook, w.url, w.state, w.state_why AS why, d.id::text AS delivery,
	CASE WHEN d.is_leased AND d.state = 'waiting' AND d.next_at > now() THEN 'sending'
		ELSE d.state END AS delivery_state,
	d.type, d.attempts,
	to_char(d.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	CASE WHEN d.state = 'waiting' THEN to_char(
		greatest(d.next_at, d.created_at) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END AS next_at,
	to_char(d.last_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS last_at,
	nullif(d.last_status, 0) AS last_status, d.last_why AS last_error
FROM webhook AS w LEFT JOIN LATERAL (
	SELECT *
	FROM (SELECT * FROM webhook_delivery AS all_of WHERE all_of.webhook_id = w.id
		ORDER BY all_of.id DESC LIMIT 10000) AS latest
	WHERE latest.coupon_id = $1::bigint AND strpos(latest.body, $2::text) > 0
) AS d ON true
WHERE w.coupon_id IS NULL OR w.coupon_id = $1::bigint
ORDER BY w.id, d.id

-- settle: Settles receives: element i of the arrays, which have one length, is one receive. Returns
-- those that were not newly issued; then a row with ord 0 and as its reason the number of this
-- transaction, 'STRIPE:NUM' (NULL: it has none). That one is read last, so that its row of
-- change_count is locked for a short time only.
-- $1 coupons, $2 generations, $3 numbers of the receives, $4 batches, $5 indexes, $6 users,
-- $7 slots, $8 keys ('' = none), $9 codes ('' = none; an empty array: none at all), $10 times of
-- acceptance (ms), $11 traces (as the codes)
SELECT ord, outcome, reason
FROM settle($1::bigint[], $2::int[], $3::bigint[], $4::uuid[], $5::smallint[], $6::text[],
	$7::smallint[], $8::text[], $9::text[], $10::bigint[], $11::text[])
UNION ALL SELECT 0, 'changed', change_note(true)

-- user_coupon_page: A page of a user's coupons, newest first: by the time of the receive, then by
-- coupon and slot. received_us is that time in microseconds since the epoch, exactly. What is of
-- the coupon is NULL where it does not exist. It is read for each row of the page only, whatever
-- the planner estimates: with its LIMIT the subquery cannot become another kind of join.
-- $1 user, $2 $3 $4 only what comes after this time (in microseconds; NULL: all), coupon and slot,
-- $5 limit, $6 whether only those that an order could use now
WITH page AS MATERIALIZED (
	SELECT coupon_id, slot, batch, idx, received_at, valid_from, valid_to
	FROM user_coupon AS u
	WHERE user_id = $1::text
		AND (received_at, coupon_id, slot) < ((SELECT coalesce(
			timestamptz 'epoch' + ($2::bigint || ' microseconds')::interval,
			'infinity')), $3::bigint, $4::smallint)
		AND ($6::boolean IS NOT TRUE OR (valid_from <= now()
			AND (valid_to <= now()) IS NOT TRUE
			AND (SELECT true FROM receive_use AS s
				WHERE s.coupon_id = u.coupon_id AND s.batch = u.batch
					AND s.idx = u.idx AND s.state <> 'free'
					AND (s.until <= now()) IS NOT TRUE LIMIT 1) IS NULL
			AND (SELECT true FROM coupon_void AS v
				WHERE v.coupon_id = u.coupon_id AND v.batch = u.batch
					AND v.idx = u.idx LIMIT 1) IS NULL))
	ORDER BY received_at DESC, coupon_id DESC, slot DESC
	LIMIT $5::int
)
SELECT page.coupon_id, page.batch, page.idx, page.slot,
	EXISTS (SELECT FROM coupon_void AS v WHERE v.coupon_id = page.coupon_id
		AND v.batch = page.batch AND v.idx = page.idx) AS is_voided,
	(SELECT use_shown(s.state, s.order_id, s.until) FROM receive_use AS s
		WHERE s.coupon_id = page.coupon_id AND s.batch = page.batch
			AND s.idx = page.idx) AS use,
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

-- user_outcomes: The outcomes of all receives of users, each for one coupon: the rows of the first
-- one, then those of the next. The issued ones by slot, then the rejected ones, newest first. At
-- most 200 rows; a user has at most 100 issued ones.
-- $1 coupons, $2 users: arrays of one length
SELECT r.ord, o.batch, o.idx, o.slot, o.state, o.reason, o.valid_from, o.valid_to, o.key, o.use
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS r (coupon_id, user_id, ord)
CROSS JOIN LATERAL (
	(SELECT 1 AS part, u.slot AS place, u.batch, u.idx, u.slot,
		CASE WHEN v.is_there THEN 'rejected' ELSE 'issued' END AS state,
		CASE WHEN v.is_there THEN 'voided' END AS reason,
		to_char(u.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
			AS valid_from,
		to_char(u.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
		coalesce(u.key, '') AS key,
		CASE WHEN v.is_there IS NULL THEN (
			SELECT use_shown(s.state, s.order_id, s.until) FROM receive_use AS s
			WHERE s.coupon_id = u.coupon_id AND s.batch = u.batch AND s.idx = u.idx)
			END AS use
	FROM user_coupon AS u LEFT JOIN LATERAL (
		-- of each row by itself: never all that were taken back of the coupon
		SELECT true AS is_there FROM coupon_void AS c
		WHERE c.coupon_id = u.coupon_id AND c.batch = u.batch AND c.idx = u.idx
		LIMIT 1
	) AS v ON true
	WHERE u.coupon_id = r.coupon_id AND u.user_id = r.user_id
	ORDER BY u.slot
	LIMIT 100)
	UNION ALL
	(SELECT 2, row_number() OVER (ORDER BY t.rejected_at DESC, t.batch, t.idx), t.batch, t.idx,
		t.slot, 'rejected', t.reason, NULL, NULL, '', NULL
	FROM receive_rejected AS t
	WHERE t.coupon_id = r.coupon_id AND t.user_id = r.user_id
	ORDER BY t.rejected_at DESC, t.batch, t.idx
	LIMIT 100)
) AS o
ORDER BY r.ord, o.part, o.place

-- void_receives: The issued and the voided receives of one user for one coupon.
-- $1 coupon, $2 user
SELECT batch, idx FROM user_coupon WHERE coupon_id = $1::bigint AND user_id = $2::text
UNION
SELECT batch, idx FROM coupon_void WHERE coupon_id = $1::bigint AND user_id = $2::text
ORDER BY batch, idx
