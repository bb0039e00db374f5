-- What couponctl audit and coupon-rush check, by the promises (P1, P2, P3); see
-- docs/reference/couponctl/audit.md.

-- audit_budgets: Promise P14: the budgets that have given more than they have, or whose counts are
-- not those of the receives, at one moment, each with one of its campaigns. A hold that has ended
-- counts until it is freed.
-- $1 coupon: only its budget (NULL: all)
SELECT b.name, b.currency, b.amount, b.held, b.spent, coalesce(n.held, 0)::bigint AS held_now,
	coalesce(n.spent, 0)::bigint AS spent_now,
	coalesce($1::bigint, (SELECT min(c.id) FROM coupon AS c WHERE c.budget = b.name))
		AS coupon_id
FROM budget AS b LEFT JOIN (
	SELECT s.budget, sum(s.amount_off) FILTER (WHERE s.state = 'held') AS held,
		sum(s.amount_off) FILTER (WHERE s.state = 'used') AS spent
	FROM receive_use AS s
	WHERE s.budget IS NOT NULL
	GROUP BY s.budget
) AS n ON n.budget = b.name
WHERE ($1::bigint IS NULL
		OR b.name = (SELECT c.budget FROM coupon AS c WHERE c.id = $1::bigint))
	AND (b.held <> coalesce(n.held, 0) OR b.spent <> coalesce(n.spent, 0)
		OR b.held + b.spent > b.amount)
ORDER BY b.name

-- audit_codes: The codes of a coupon that are used without a user coupon of the same receive, or
-- the other way round; but for codes that were used when they were imported. At most 100. OFFSET 0:
-- the codes of each set by their primary key.
-- $1 coupon
SELECT coalesce(c.code, u.code) AS code, coalesce(c.user_id, u.user_id) AS user_id,
	u.user_id IS NOT NULL AS has_row
FROM (SELECT s.id || '.' || c.serial AS code, c.user_id, c.batch, c.idx
		FROM code_set AS s, LATERAL (SELECT * FROM code
			WHERE code.set_id = s.id AND code.state = 'used' AND code.batch IS NOT NULL
			OFFSET 0) AS c
		WHERE s.coupon_id = $1::bigint) AS c
	FULL JOIN (SELECT code, user_id, batch, idx FROM user_coupon
		WHERE coupon_id = $1::bigint AND strpos(code, '.') > 0) AS u
		ON u.code = c.code AND u.user_id = c.user_id AND u.batch = c.batch
			AND u.idx = c.idx
WHERE c.code IS NULL OR u.code IS NULL
ORDER BY 1, 2
LIMIT 100

-- audit_coupon: Reads one coupon for an audit. Times in ms since the epoch, 0 = no bound.
-- rejected_num excludes receives that were rejected before the coupon existed: no generation counts
-- them. idle_ms: since the last outcome; NULL: none is recorded.
-- $1 coupon
SELECT status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM least(end_at, valid_to)) * 1000)::bigint, 0) AS end_ms,
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
		WHERE t.coupon_id = coupon.id AND t.freed_at IS NULL) AS unfreed_num
FROM coupon
WHERE id = $1::bigint

-- audit_limit: Promise P2: one row for each user with more coupons than the limit, or with a slot
-- outside 1 to the limit.
-- $1 coupon (NULL: all)
SELECT u.coupon_id::text, u.user_id::text, c.user_limit, count(*) AS row_num,
	min(u.slot) AS slot_min, max(u.slot) AS slot_max
FROM user_coupon AS u JOIN coupon AS c ON c.id = u.coupon_id
WHERE $1::bigint IS NULL OR u.coupon_id = $1::bigint
GROUP BY u.coupon_id, u.user_id, c.user_limit
HAVING count(*) > c.user_limit OR min(u.slot) < 1 OR max(u.slot) > c.user_limit
ORDER BY u.coupon_id, u.user_id

-- audit_locks: The transactions that hold a lock on a table that settling writes, except readers
-- and VACUUM. A role cannot see when transactions of other roles began; a virtual transaction that
-- is returned twice is still open.
SELECT DISTINCT l.virtualtransaction AS holder
FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.granted
	AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock')
	AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
	AND l.relation IN (SELECT 'coupon'::regclass
		UNION ALL SELECT 'coupon_generation'::regclass
		UNION ALL SELECT 'coupon_late'::regclass
		UNION ALL SELECT 'receive_rejected'::regclass
		UNION ALL SELECT relid FROM pg_partition_tree('user_coupon'))
ORDER BY holder
LIMIT 64

-- audit_outcomes: The outcomes of some receives of a coupon, one row for each: its user coupon
-- (issued_ms: when Redis accepted it), its rejection (rejected_ms, is_freed), whether Redis has
-- not counted the outcome yet (is_late), and the receive that has its slot (holder_batch). NULL:
-- none.
-- $1 coupon, $2 users, $3 slots, $4 batches, $5 indexes: arrays of one length
SELECT r.ord, floor(extract(epoch FROM own.received_at) * 1000)::bigint AS issued_ms,
	floor(extract(epoch FROM t.received_at) * 1000)::bigint AS rejected_ms,
	t.freed_at IS NOT NULL AS is_freed,
	EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = $1::bigint
		AND l.user_id = r.user_id AND l.batch = r.batch AND l.idx = r.idx) AS is_late,
	holder.batch AS holder_batch, holder.idx AS holder_idx,
	coalesce(holder.key, '') || coalesce(E'\t' || holder.code, '') AS holder_key
FROM unnest($2::text[], $3::smallint[], $4::uuid[], $5::smallint[])
		WITH ORDINALITY AS r (user_id, slot, batch, idx, ord)
	LEFT JOIN LATERAL (SELECT u.batch, u.idx, u.key, u.code, u.received_at
		FROM user_coupon AS u
		WHERE u.user_id = r.user_id AND u.coupon_id = $1::bigint AND u.slot = r.slot
		LIMIT 1) AS holder ON true
	LEFT JOIN LATERAL (SELECT holder.received_at
		WHERE holder.batch = r.batch AND holder.idx = r.idx) AS own ON true
	LEFT JOIN LATERAL (SELECT t.received_at, t.freed_at FROM receive_rejected AS t
		WHERE t.coupon_id = $1::bigint AND t.batch = r.batch AND t.idx = r.idx
			AND t.user_id = r.user_id
		LIMIT 1) AS t ON true
ORDER BY r.ord

-- audit_overtaken: The latest receive of a coupon that has an outcome, of those that were accepted
-- after $2: when its batch was made, by the gateway's clock, or when Redis accepted it, whichever
-- is earlier. One clock that is ahead thus changes nothing. NULL: none.
-- $1 coupon, $2 time in ms since the epoch
SELECT max(least(r.accepted_ms,
	('x' || left(replace(r.batch::text, '-', ''), 12))::bit(48)::bigint)) AS newest_ms
FROM (SELECT batch, floor(extract(epoch FROM received_at) * 1000)::bigint AS accepted_ms
	FROM user_coupon
	WHERE coupon_id = $1::bigint
		AND received_at > timestamptz 'epoch' + $2::bigint * interval '1 ms'
	UNION ALL
	SELECT batch, floor(extract(epoch FROM received_at) * 1000)::bigint
	FROM receive_rejected
	WHERE coupon_id = $1::bigint AND reason NOT IN ('lost', 'unknown_coupon')
		AND received_at > timestamptz 'epoch' + $2::bigint * interval '1 ms') AS r

-- audit_receive: The user coupons of one receive. There must be at most one.
-- $1 coupon, $2 batch, $3 index
SELECT user_id, slot, batch, idx
FROM user_coupon
WHERE coupon_id = $1::bigint AND batch = $2::uuid AND idx = $3::smallint
ORDER BY user_id, slot

-- audit_rows: All user coupons of a coupon, unordered; `key` as in a record of Redis, with a tab
-- and the code if one was claimed. Read once, through a cursor.
-- $1 coupon
SELECT user_id, slot, batch, idx, coalesce(key, '') || coalesce(E'\t' || code, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint

-- audit_stock: Promise P1: one row for each coupon that is issued beyond its total, or whose count
-- differs from its rows (including rows whose coupon does not exist).
-- $1 coupon (NULL: all)
SELECT coalesce(c.id, u.coupon_id)::text AS coupon_id, c.total_num, c.issued_num,
	coalesce(u.row_num, 0) AS row_num
FROM (SELECT id, total_num, issued_num FROM coupon
		WHERE $1::bigint IS NULL OR id = $1::bigint) AS c
	FULL JOIN (SELECT coupon_id, count(*) AS row_num FROM user_coupon
		WHERE $1::bigint IS NULL OR coupon_id = $1::bigint
		GROUP BY coupon_id) AS u ON u.coupon_id = c.id
WHERE c.id IS NULL OR c.issued_num <> coalesce(u.row_num, 0) OR c.issued_num > c.total_num
ORDER BY coalesce(c.id, u.coupon_id)

-- audit_twice: Promise P3: one row for each receive with two outcomes.
-- $1 coupon (NULL: all)
SELECT 'issued_and_rejected' AS what, t.coupon_id::text, u.user_id::text, u.slot, t.batch, t.idx
FROM receive_rejected AS t JOIN user_coupon AS u
	ON u.coupon_id = t.coupon_id AND u.batch = t.batch AND u.idx = t.idx
WHERE $1::bigint IS NULL OR t.coupon_id = $1::bigint
UNION ALL
SELECT 'issued_twice', coupon_id::text, min(user_id)::text, min(slot), batch, idx
FROM user_coupon
WHERE $1::bigint IS NULL OR coupon_id = $1::bigint
GROUP BY coupon_id, batch, idx
HAVING count(*) > 1
ORDER BY 2, 5, 6

-- audit_unknown: User coupons whose coupon does not exist.
-- $1 coupon (NULL: all)
SELECT u.coupon_id, u.user_id, u.slot, u.batch, u.idx
FROM user_coupon AS u
WHERE ($1::bigint IS NULL OR u.coupon_id = $1::bigint)
	AND NOT EXISTS (SELECT FROM coupon AS c WHERE c.id = u.coupon_id)
ORDER BY u.coupon_id, u.user_id, u.slot

-- audit_uses: Promises P12 and P13: what is wrong with the receives of a coupon that orders have
-- named, at one moment: one that has changed while another order had it, whose state is not that
-- which its last change has left, or that was never issued. A void may come after a use. At most
-- 100.
-- $1 coupon
WITH change AS (
	SELECT o.user_id, o.batch, o.idx, o.at, o.order_id, o.to_state, o.until, o.amount_off,
		o.budget, lag(o.to_state) OVER w AS old_state, lag(o.order_id) OVER w AS old_order,
		lag(o.until) OVER w AS old_until, lead(o.num) OVER w IS NULL AS is_last
	FROM use_operation AS o
	WHERE o.coupon_id = $1::bigint AND o.to_state IS NOT NULL
	WINDOW w AS (PARTITION BY o.batch, o.idx ORDER BY o.num)
), wrong AS (
	SELECT 'use_taken' AS what, c.user_id, c.batch, c.idx, c.order_id, c.old_order
	FROM change AS c
	WHERE c.old_state = 'used' AND (c.to_state = 'held' OR c.order_id <> c.old_order)
	UNION ALL
	SELECT 'hold_taken', c.user_id, c.batch, c.idx, c.order_id, c.old_order
	FROM change AS c
	WHERE c.old_state = 'held' AND c.old_until > c.at AND c.order_id <> c.old_order
	UNION ALL
	SELECT 'use_state', coalesce(s.user_id, c.user_id), batch, idx, s.order_id, c.order_id
	FROM (SELECT * FROM change WHERE is_last) AS c
		FULL JOIN (SELECT * FROM receive_use WHERE coupon_id = $1::bigint) AS s
		USING (batch, idx)
	WHERE coalesce(s.state, 'none') <> coalesce(c.to_state, 'free')
		OR (s.state <> 'free' AND (s.user_id, s.order_id, s.amount_off, s.budget)
			IS DISTINCT FROM (c.user_id, c.order_id, c.amount_off, c.budget))
		OR (s.state = 'held' AND s.until <> c.until)
	UNION ALL
	SELECT 'use_unknown', s.user_id, s.batch, s.idx, s.order_id, NULL
	FROM receive_use AS s
		LEFT JOIN user_coupon AS u ON u.user_id = s.user_id AND u.coupon_id = s.coupon_id
			AND u.batch = s.batch AND u.idx = s.idx
		LEFT JOIN coupon_void AS v ON v.coupon_id = s.coupon_id AND v.batch = s.batch
			AND v.idx = s.idx
	WHERE s.coupon_id = $1::bigint AND s.state <> 'free' AND u.batch IS NULL
		AND v.batch IS NULL
)
SELECT w.what, w.user_id, coalesce(u.slot, 0) AS slot, w.batch, w.idx, w.order_id, w.old_order
FROM wrong AS w
	LEFT JOIN user_coupon AS u ON u.user_id = w.user_id AND u.coupon_id = $1::bigint
		AND u.batch = w.batch AND u.idx = w.idx
ORDER BY w.what, w.batch, w.idx
LIMIT 100

-- audit_workers: The number of workers whose un-acked messages are still to be settled: they are in
-- a long transaction, or have put off coupons. They try one of these again each second; a session
-- that is idle for longer has settled them. Workers log in as couponmq_worker, or as this session's
-- role.
SELECT count(DISTINCT pid) AS hold_num
FROM (
	SELECT pid, name, state, xact_start, state_change FROM worker_sessions()
	UNION ALL
	SELECT pid, application_name, state, xact_start, state_change FROM pg_stat_activity
) AS session
WHERE (name LIKE 'coupon-worker%' AND state <> 'idle'
		AND xact_start < clock_timestamp() - interval '1 second')
	OR (name LIKE 'coupon-worker put off%'
		AND (state <> 'idle' OR state_change > clock_timestamp() - interval '5 seconds'))

-- rush_rejections: The rejected receives of some users, each of one coupon, unordered; ord is the
-- user's position, from 1. OFFSET 0 keeps the inner SELECT a look-up by index for each user: a join
-- may read whole tables.
-- $1 coupons, $2 users
SELECT r.ord, r.coupon_id, o.batch, o.idx
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS r (coupon_id, user_id, ord)
	CROSS JOIN LATERAL (SELECT t.batch, t.idx FROM receive_rejected AS t
		WHERE t.coupon_id = r.coupon_id AND t.user_id = r.user_id
		OFFSET 0) AS o

-- rush_rows: The user coupons of some users, of the coupons from one id to another, unordered; ord
-- is the user's position, from 1. OFFSET 0 keeps the inner SELECT a look-up by index for each user:
-- a join may read whole tables.
-- $1 the first coupon, $2 the last, $3 users
SELECT r.ord, o.coupon_id, o.batch, o.idx
FROM unnest($3::text[]) WITH ORDINALITY AS r (user_id, ord)
	CROSS JOIN LATERAL (SELECT t.coupon_id, t.batch, t.idx FROM user_coupon AS t
		WHERE t.user_id = r.user_id AND t.coupon_id BETWEEN $1::bigint AND $2::bigint
		OFFSET 0) AS o

-- rush_settled: The numbers of settled receives of coupons, over all their generations, in the
-- order of their ids. Run every few milliseconds.
-- $1 coupons
SELECT id, total_num, issued_num, generation, settled_num AS settled_now_num,
	settled_num + (SELECT coalesce(sum(g.settled_num), 0)::bigint FROM coupon_generation AS g
		WHERE g.coupon_id = coupon.id) AS settled_num
FROM coupon
WHERE id = ANY ($1::bigint[])
ORDER BY id
