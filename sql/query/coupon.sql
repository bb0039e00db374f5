-- Coupons, for operators, gateways and workers.

-- coupon_create: Creates a draft and returns its id. No row: the id is in use.
-- $1 id (NULL: the next free one), $2 its terms: a JSON object with columns of the table
INSERT INTO coupon (id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from,
	valid_to, zone, currency, amount_off, percent_off, threshold, cap, budget, metadata,
	void_returns, events_on, tell_before, tags, hidden)
SELECT coalesce($1::bigint, coupon_id_next()), name, total_num, coalesce(user_limit, 1), begin_at,
	end_at, valid_days, valid_from, valid_to, coalesce(zone, 'UTC'), currency, amount_off,
	percent_off, threshold, cap, budget, metadata, coalesce(void_returns, true),
	coalesce(events_on, false), tell_before, coalesce(tags, '{}'), coalesce(hidden, false)
FROM jsonb_populate_record(NULL::coupon, $2::jsonb)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- coupon_edit: Gives a coupon new terms. No row: nothing differs, or there is no such coupon.
-- $1 coupon, $2 what is new: a JSON object with columns of the table
WITH wanted AS (
	SELECT w.* FROM coupon AS c, jsonb_populate_record(c, $2::jsonb) AS w
	WHERE c.id = $1::bigint
)
UPDATE coupon AS c
SET name = w.name, user_limit = w.user_limit, begin_at = w.begin_at, end_at = w.end_at,
	valid_days = w.valid_days, valid_from = w.valid_from, valid_to = w.valid_to,
	zone = w.zone, currency = w.currency, amount_off = w.amount_off,
	percent_off = w.percent_off, threshold = w.threshold, cap = w.cap, budget = w.budget,
	metadata = w.metadata, void_returns = w.void_returns, events_on = w.events_on,
	tell_before = w.tell_before, tags = w.tags, hidden = w.hidden, version = c.version + 1,
	updated_at = now()
FROM wanted AS w
WHERE c.id = w.id
	AND (c.name, c.user_limit, c.begin_at, c.end_at, c.valid_days, c.valid_from, c.valid_to,
		c.zone, c.currency, c.amount_off, c.percent_off, c.threshold, c.cap, c.budget,
		c.metadata, c.void_returns, c.events_on, c.tell_before, c.tags, c.hidden)
	IS DISTINCT FROM (w.name, w.user_limit, w.begin_at, w.end_at, w.valid_days, w.valid_from,
		w.valid_to, w.zone, w.currency, w.amount_off, w.percent_off, w.threshold, w.cap,
		w.budget, w.metadata, w.void_returns, w.events_on, w.tell_before, w.tags, w.hidden)
RETURNING c.version

-- coupon_budget: The budget that a coupon would have with these terms: whether they fit. No row: it
-- would have none.
-- $1 coupon (NULL: a new one), $2 what is new: a JSON object with columns of the table
SELECT w.budget, b.currency, b.name IS NOT NULL AS is_known,
	coalesce(b.currency = w.currency
		AND coalesce(w.amount_off, w.percent_off) IS NOT NULL, false) AS fits
FROM (SELECT) AS one
	LEFT JOIN coupon AS c ON c.id = $1::bigint
	CROSS JOIN LATERAL jsonb_populate_record(c, $2::jsonb) AS w
	LEFT JOIN budget AS b ON b.name = w.budget
WHERE w.budget IS NOT NULL

-- coupon_telling: Whether the terms of a coupon with tell_before would fit it: it has events, its
-- validity ends, and a number of days is longer. No row: it would have none.
-- $1 coupon (NULL: a new one), $2 what is new: a JSON object with columns of the table
SELECT coalesce(w.events_on, false) AS has_events,
	coalesce(w.valid_days IS NOT NULL OR w.valid_to IS NOT NULL, false) AS has_end,
	coalesce(w.valid_days * bigint '86400' > w.tell_before, true) AS fits
FROM (SELECT) AS one
	LEFT JOIN coupon AS c ON c.id = $1::bigint
	CROSS JOIN LATERAL jsonb_populate_record(c, $2::jsonb) AS w
WHERE w.tell_before IS NOT NULL

-- coupon_has_codes: Whether a coupon has exchange codes.
-- $1 coupon
SELECT EXISTS (SELECT FROM code_set WHERE coupon_id = $1::bigint) AS has_codes

-- coupon_history: What happened to a campaign, in order: every recorded change, with the terms
-- that it changed, and the moments at which it opened by the clock. currency: that of the amounts
-- in the terms, after the change.
-- $1 coupon, $2 after this entry, $3 limit
WITH recorded AS (
	SELECT h.*, (h.terms->>'begin_at')::timestamptz AS begin_at,
		least((h.terms->>'end_at')::timestamptz, (h.terms->>'valid_to')::timestamptz)
			AS end_at,
		lead(h.made_at) OVER (ORDER BY h.id) AS next_at,
		lag(h.terms) OVER (ORDER BY h.id) AS terms_before
	FROM campaign_history AS h
	WHERE h.coupon_id = $1::bigint
), before AS (
	SELECT *, lag(begin_at) OVER (ORDER BY id) AS begin_before,
		lag(end_at) OVER (ORDER BY id) AS end_before
	FROM recorded
), happened AS (
	SELECT id, made_at, made_by, action,
		CASE WHEN from_status IS NOT NULL THEN
			campaign_state(from_status, begin_before, end_before, made_at) END
			AS from_state,
		campaign_state(terms->>'status', begin_at, end_at, made_at) AS to_state,
		version, terms->>'currency' AS currency,
		(SELECT jsonb_object_agg(t.key, jsonb_build_array(terms_before->t.key, t.value))
			FROM jsonb_each(terms) AS t
			WHERE t.key NOT IN ('status', 'valid_xid') AND terms_before IS NOT NULL
				AND t.value IS DISTINCT FROM terms_before->t.key
				-- A term that did not exist yet had its default.
				AND (terms_before ? t.key
					OR t.value NOT IN ('null', 'false', '"UTC"', '[]')))
			AS changes
	FROM before
	UNION ALL
	SELECT id, begin_at, 'the clock', 'open', 'scheduled', 'issuing', version,
		terms->>'currency', NULL
	FROM recorded
	WHERE terms->>'status' = 'published' AND begin_at > made_at
		AND begin_at <= least(next_at, now())
)
SELECT num AS id, to_char(made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at,
	made_by AS by, action, from_state AS from, to_state AS to, version, currency, changes
FROM (SELECT *, row_number() OVER (ORDER BY id, made_at) AS num FROM happened) AS numbered
WHERE num > $2::bigint
ORDER BY num
LIMIT $3::bigint

-- coupon_issued: The state of a coupon, and how many user coupons it has.
-- $1 coupon
SELECT status, issued_num FROM coupon WHERE id = $1::bigint

-- coupon_list: A page of all coupons, in the order of their ids.
-- $1 after this id, $2 limit
SELECT id::text AS coupon, name, status,
	campaign_state(status, begin_at, least(end_at, valid_to), now()) AS state,
	total_num AS total, issued_num AS issued, user_limit AS limit, tags,
	to_char(begin_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS begin,
	to_char(end_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS end
FROM coupon
WHERE id > $1::bigint
ORDER BY id
LIMIT $2::int

-- coupon_find: The campaigns that match, in an order: a page of them.
-- $1 after this id, $2 limit, $3 how many are left out first, $4 a text in the name, or the id
-- (NULL: any), $5 the state, also sold_out (NULL: any), $6 and $7 a span that the window touches,
-- in ms (NULL: without an end on this side), $8 what they are ordered by: id, name, begin, end,
-- total or issued, $9 whether downwards, $10 a tag (NULL: any)
SELECT id::text AS coupon, name, status, s.state, total_num AS total, issued_num AS issued,
	user_limit AS limit, tags,
	to_char(begin_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS begin,
	to_char(end_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS end
FROM coupon, campaign_state(status, begin_at, least(end_at, valid_to), now()) AS s (state)
WHERE id > $1::bigint
	AND ($4::text IS NULL OR id::text = $4::text OR strpos(lower(name), lower($4::text)) > 0)
	AND ($5::text IS NULL OR $5::text = CASE
		WHEN s.state = 'issuing' AND issued_num >= total_num THEN 'sold_out'
		ELSE s.state END)
	AND ($10::text IS NULL OR $10::text = ANY (tags))
	AND ($6::bigint IS NULL OR end_at IS NULL
		OR end_at >= timestamptz 'epoch' + $6::bigint * interval '1 ms')
	AND ($7::bigint IS NULL OR begin_at IS NULL
		OR begin_at <= timestamptz 'epoch' + $7::bigint * interval '1 ms')
ORDER BY CASE WHEN $8::text = 'name' AND NOT $9::boolean THEN lower(name) END,
	CASE WHEN $8::text = 'name' AND $9::boolean THEN lower(name) END DESC,
	(CASE $8::text WHEN 'begin' THEN extract(epoch FROM begin_at)
		WHEN 'end' THEN extract(epoch FROM end_at) WHEN 'total' THEN total_num
		WHEN 'issued' THEN issued_num END) * CASE WHEN $9::boolean THEN -1 ELSE 1 END,
	id * CASE WHEN $9::boolean THEN -1 ELSE 1 END
LIMIT $2::bigint OFFSET $3::bigint

-- coupon_lock: Reads a coupon and locks it until the transaction ends: until then its receives are
-- not settled. Times in ms since the epoch, 0 = no bound; end_ms: nothing is issued from then on;
-- own_end_ms: the end of the campaign alone; now_ms is the server's clock. begin and end: as clocks
-- of its zone show them.
-- $1 coupon
SELECT id, status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM least(end_at, valid_to)) * 1000)::bigint, 0) AS end_ms,
	coalesce(floor(extract(epoch FROM end_at) * 1000)::bigint, 0) AS own_end_ms,
	coalesce(floor(extract(epoch FROM valid_to) * 1000)::bigint, 0) AS valid_to_ms,
	floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
	zone, zone_text(begin_at, zone) AS begin, zone_text(end_at, zone) AS end,
	generation, seq_seen, settled_num
FROM coupon
WHERE id = $1::bigint
FOR NO KEY UPDATE

-- coupon_locked: Those of the coupons whose rows other sessions have locked, so that settle() would
-- wait. It waits for no row lock; its own end with the statement. A worker's settlement ends soon,
-- and is not reported.
-- $1 coupons
WITH free AS MATERIALIZED (
	SELECT id FROM coupon WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT c.id
FROM coupon AS c
WHERE c.id = ANY ($1::bigint[])
	AND NOT EXISTS (SELECT FROM free WHERE free.id = c.id)
	AND NOT EXISTS (SELECT FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
		WHERE l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted
			AND a.application_name LIKE 'coupon-worker%')

-- coupon_discount: What a coupon gives to users: its discount, and metadata; and the version of its
-- terms.
-- $1 coupon
SELECT version, currency, amount_off, percent_off, cap, threshold, metadata::text AS metadata
FROM coupon
WHERE id = $1::bigint

-- coupon_recent: The latest outcomes of a coupon by the time of acceptance, newest first. The last
-- 64 pages of each partition are read first, which mostly have them: the $2th time there is a bound
-- for the index, which also finds later rows in pages whose space was free.
-- $1 coupon, $2 how many
SELECT user_id, batch, idx, slot, state, reason,
	to_char(received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS received_at
FROM (
	(SELECT u.user_id, u.batch, u.idx, u.slot, u.received_at,
		CASE WHEN v.batch IS NULL THEN 'issued' ELSE 'rejected' END AS state,
		CASE WHEN v.batch IS NOT NULL THEN 'voided' END AS reason
	FROM user_coupon AS u
		LEFT JOIN coupon_void AS v ON v.coupon_id = $1::bigint AND v.batch = u.batch
			AND v.idx = u.idx
	WHERE u.coupon_id = $1::bigint AND u.received_at >= coalesce((
		SELECT last.received_at
		FROM (SELECT inhrelid, format('(%s,0)', greatest(0, pg_relation_size(inhrelid)
				/ current_setting('block_size')::int - 64))::tid AS first
				FROM pg_inherits WHERE inhparent = 'user_coupon'::regclass) AS part,
			LATERAL (SELECT e.received_at FROM user_coupon AS e
				WHERE e.tableoid = part.inhrelid AND e.ctid >= part.first
					AND e.coupon_id = $1::bigint
				ORDER BY e.received_at DESC LIMIT $2::int) AS last
		ORDER BY last.received_at DESC OFFSET $2::int - 1 LIMIT 1), '-infinity')
	ORDER BY u.received_at DESC, u.batch DESC, u.idx DESC LIMIT $2::int)
	UNION ALL
	(SELECT user_id, batch, idx, slot, received_at, 'rejected', reason FROM receive_rejected
	WHERE coupon_id = $1::bigint
	ORDER BY batch DESC, idx DESC LIMIT $2::int)
) AS outcomes
ORDER BY received_at DESC, batch DESC, idx DESC
LIMIT $2::int

-- coupon_show: One coupon as couponctl show prints it. in_flight: receives without an outcome, also
-- those of older generations, by the numbers that PostgreSQL has seen.
-- $1 coupon
SELECT id::text AS coupon,
	campaign_state(status, begin_at, least(end_at, valid_to), now()) AS state,
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
	zone, zone_text(begin_at, zone) AS "local.begin", zone_text(end_at, zone) AS "local.end",
	zone_text(valid_from, zone) AS "local.valid_from",
	zone_text(valid_to, zone) AS "local.valid_to",
	CASE WHEN tell_before % 86400 = 0 THEN tell_before / 86400 || 'd'
		WHEN tell_before % 3600 = 0 THEN tell_before / 3600 || 'h'
		WHEN tell_before % 60 = 0 THEN tell_before / 60 || 'm'
		ELSE tell_before || 's' END AS "local.tell_before",
	valid_days, amount_off AS "discount.amount_off", percent_off AS "discount.percent_off",
	cap AS "discount.cap", threshold AS "discount.threshold", currency AS "discount.currency",
	budget AS "budget.name",
	(SELECT amount FROM budget AS b WHERE b.name = coupon.budget) AS "budget.amount",
	(SELECT amount - held - spent FROM budget AS b WHERE b.name = coupon.budget)
		AS "budget.left",
	pause_reason, metadata, void_returns, events_on AS events, tell_before, tags, hidden,
	array_to_string(tags, ',') AS "local.tags", status AS "postgresql.status",
	version AS "postgresql.version", total_num AS "postgresql.total",
	issued_num AS "postgresql.issued",
	(SELECT count(*) FROM receive_rejected AS t WHERE t.coupon_id = coupon.id)
		AS "postgresql.rejected",
	(SELECT jsonb_object_agg(r.answer, r.num ORDER BY r.num DESC)
		FROM (SELECT answer, sum(num)::bigint AS num FROM coupon_refusal
			WHERE coupon_id = coupon.id GROUP BY answer) AS r) AS refused,
	generation AS "postgresql.generation", seq_seen AS "postgresql.seq",
	settled_num AS "postgresql.settled",
	seq_seen - settled_num
		+ (SELECT coalesce(sum(greatest(g.seq_seen - g.settled_num, 0)), 0)::bigint
			FROM coupon_generation AS g WHERE g.coupon_id = coupon.id) AS in_flight
FROM coupon
WHERE id = $1::bigint

-- coupon_state: The state of coupons that Redis does not have. Times in ms since the epoch, 0 = no
-- bound; now_ms is the server's clock. Generation 0: the coupon was never loaded into Redis.
-- settled: it is closed, and no receive is in flight.
-- $1 coupons
SELECT id, status,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM least(end_at, valid_to)) * 1000)::bigint, 0) AS end_ms,
	floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
	generation, settled_at IS NOT NULL AS settled
FROM coupon
WHERE id = ANY ($1::bigint[])

-- coupon_status_set: Changes the status of a coupon, as campaign_transition allows; a pause by a
-- budget becomes one by an operator. Returns the resulting status, which differs from the wanted
-- one if that change is not allowed. No row: no such coupon.
-- $1 coupon, $2 wanted status
WITH old AS (
	SELECT id, status, pause_reason, version FROM coupon
	WHERE id = $1::bigint FOR NO KEY UPDATE
), moved AS (
	UPDATE coupon
	SET status = $2::text, pause_reason = NULL, version = coupon.version + 1, updated_at = now()
	FROM old
	WHERE coupon.id = old.id
		AND ((old.status, $2::text) IN (
				SELECT from_status, to_status FROM campaign_transition)
			OR (old.status = $2::text AND old.pause_reason IS NOT NULL))
	RETURNING coupon.id, coupon.status, coupon.version
)
SELECT old.id::text, old.status AS old_status, coalesce(moved.status, old.status) AS status,
	coalesce(moved.version, old.version) AS version
FROM old LEFT JOIN moved ON moved.id = old.id

-- coupon_total_set: Sets the total of a coupon, unless it is less than the number issued. Returns
-- the resulting total, which differs from the wanted one if that is too low. No row: no such
-- coupon.
-- $1 coupon, $2 wanted total
WITH old AS (
	SELECT id, status, total_num, issued_num, version FROM coupon
	WHERE id = $1::bigint FOR NO KEY UPDATE
), changed AS (
	UPDATE coupon
	SET total_num = $2::bigint, version = coupon.version + 1, updated_at = now()
	FROM old
	WHERE coupon.id = old.id AND $2::bigint >= old.issued_num
		AND $2::bigint <> old.total_num
	RETURNING coupon.id, coupon.total_num, coupon.version
)
SELECT old.id::text, old.status, old.total_num AS old_total_num,
	coalesce(changed.total_num, old.total_num) AS total_num, old.issued_num,
	coalesce(changed.version, old.version) AS version
FROM old LEFT JOIN changed ON changed.id = old.id

-- coupon_version_raise: Raises the version of a coupon's terms above that in Redis, which may have
-- other terms under it, for instance after an interrupted `couponctl stock`.
-- $1 coupon, $2 version in Redis
UPDATE coupon SET version = $2::int + 1, updated_at = now()
WHERE id = $1::bigint AND version <= $2::int

-- coupon_void: Takes an issued receive back; see sql/function/coupon_void.sql.
-- $1 coupon, $2 batch, $3 index, $4 user, $5 why (NULL: not told)
SELECT result, is_returned, slot
FROM coupon_void($1::bigint, $2::uuid, $3::smallint, $4::text, $5::text)

-- distribute_issued: The users who got a coupon by a key that has a prefix, also if it was taken
-- back; unordered, and some twice. Read once, through a cursor.
-- $1 coupon, $2 prefix
SELECT user_id, key
FROM user_coupon
WHERE coupon_id = $1::bigint AND starts_with(key, $2::text)
UNION ALL
SELECT user_id, key
FROM coupon_void
WHERE coupon_id = $1::bigint AND starts_with(key, $2::text)

-- export_rows: All user coupons of a coupon for couponctl export, but for voided ones, and which
-- order has each, since when, and what it takes off; unordered. `code` is SET.SERIAL, or SET of a
-- word; `code_text`: the text of codes that others made, and of words. Read once, through a cursor.
-- $1 coupon
SELECT u.user_id, u.slot, u.batch, u.idx, u.key, u.code,
	(SELECT coalesce(c.spelling, c.text) FROM code AS c
		WHERE c.set_id = split_part(u.code, '.', 1)::bigint
			AND c.serial = ('0' || split_part(u.code, '.', 2))::bigint)
		AS code_text,
	to_char(received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS received_at,
	to_char(valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_from,
	to_char(valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	s.state AS use, s.order_id AS use_order,
	to_char(s.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS use_until,
	to_char((SELECT o.at FROM use_operation AS o
			WHERE o.coupon_id = s.coupon_id AND o.batch = s.batch AND o.idx = s.idx
				AND o.to_state = s.state AND o.from_state <> s.state
			ORDER BY o.num DESC LIMIT 1) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS use_at,
	s.amount_off, CASE WHEN s.amount_off IS NOT NULL THEN
		(SELECT c.currency FROM coupon AS c WHERE c.id = u.coupon_id) END AS currency
FROM user_coupon AS u
	LEFT JOIN receive_use AS s ON s.coupon_id = u.coupon_id AND s.batch = u.batch
		AND s.idx = u.idx AND s.state <> 'free' AND (s.until <= now()) IS NOT TRUE
WHERE u.coupon_id = $1::bigint
	AND NOT EXISTS (SELECT FROM coupon_void AS v WHERE v.coupon_id = $1::bigint
		AND v.batch = u.batch AND v.idx = u.idx)

-- generation_lost: Records as lost the numbers of an older generation that have no outcome, and
-- returns how many there were. The caller must hold the lock on the coupon.
-- $1 coupon, $2 generation, $3 its highest number in Redis, $4 how many of its receives without an
-- outcome can still arrive
WITH old AS (
	SELECT coupon_id, generation, greatest(seq_seen, $3::bigint) AS seq, settled_num
	FROM coupon_generation WHERE coupon_id = $1::bigint AND generation = $2::int
), given_up AS (
	UPDATE coupon_generation AS g SET seq_seen = old.seq, settled_num = old.seq - $4::bigint
	FROM old
	WHERE g.coupon_id = old.coupon_id AND g.generation = old.generation
		AND old.settled_num < old.seq - $4::bigint
	RETURNING old.seq - $4::bigint - old.settled_num AS lost_num
)
SELECT lost_num FROM given_up

-- generation_seen: Stores the highest numbers of older generations that Redis has.
-- $1 coupon, $2 generations and $3 numbers: arrays of one length
UPDATE coupon_generation AS g
SET seq_seen = seen.seq
FROM unnest($2::int[], $3::bigint[]) AS seen (generation, seq)
WHERE g.coupon_id = $1::bigint AND g.generation = seen.generation AND g.seq_seen < seen.seq
