-- Rebuilds of coupons in Redis; see docs/about/lifecycle.md.

-- rebuild_answer: Records the result of a requested rebuild. No row: another keeper was elected.
-- $1 coupon, $2 number of the request (rebuild_asked as it was read), $3 result,
-- $4 the keeper's fence
UPDATE coupon
SET rebuild_done = greatest(rebuild_done, $2::int), rebuild_told = $3::text
FROM (SELECT fence FROM keeper WHERE fence = $4::bigint FOR SHARE) AS elected
WHERE id = $1::bigint
RETURNING id

-- rebuild_ask: Requests a rebuild, notifies the keeper, and returns the number of the request. No
-- row: there is no such coupon, or it cannot be rebuilt.
-- $1 coupon
WITH asked AS (
	UPDATE coupon SET rebuild_asked = rebuild_asked + 1
	WHERE id = $1::bigint AND status <> 'draft' AND settled_at IS NULL
	RETURNING id, rebuild_asked
)
SELECT rebuild_asked, pg_notify('couponmq_terms', id::text) FROM asked

-- rebuild_begin: Begins the transaction of a rebuild: all its queries read one snapshot and wait
-- for no lock.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- rebuild_coupon: Reads coupons for a rebuild. Times in ms since the epoch, 0 = no bound. The first
-- columns are those of coupon_page.
-- $1 coupons
SELECT id, status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM least(end_at, valid_to)) * 1000)::bigint, 0) AS end_ms,
	generation, seq_seen, settled_num, rebuild_asked, rebuild_done,
	EXISTS (SELECT FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.freed_at IS NULL) AS is_pending,
	settled_at IS NOT NULL AS is_settled,
	EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = coupon.id) AS is_late,
	revocation_num,
	late_num,
	(SELECT count(*) FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.freed_at IS NULL) AS unfreed_num,
	EXISTS (SELECT FROM receive_rejected AS t WHERE t.coupon_id = coupon.id) AS has_rejected
FROM coupon
WHERE id = ANY ($1::bigint[])
ORDER BY id

-- rebuild_end: Ends the transaction that rebuild_begin began.
COMMIT

-- rebuild_fetch: The next page of rebuild_rows.
FETCH 512 FROM rebuild_rows

-- rebuild_fetch_revoked: The next page of rebuild_revoked.
FETCH 512 FROM rebuild_revoked

-- rebuild_generations: The counts of the older generations of coupons; generation 0 has the sums of
-- those that are folded.
-- $1 coupons
SELECT coupon_id, generation, seq_seen, settled_num
FROM coupon_generation
WHERE coupon_id = ANY ($1::bigint[])
ORDER BY coupon_id, generation

-- rebuild_page_open: Opens a new generation of each of these coupons, in the order of their ids,
-- and returns it. NULL: as where coupon_generation_open has no row.
-- $1 coupons, ascending, $2 expected generations, $3 generations in Redis (0: none): arrays of one
-- length, $4 the keeper's fence
SELECT c.id, coupon_generation_open(c.id, c.expected, c.redis, $4::bigint) AS generation
FROM unnest($1::bigint[], $2::int[], $3::int[]) WITH ORDINALITY AS c (id, expected, redis, nr)
ORDER BY c.nr

-- rebuild_page_rows: The user coupons of coupons that have few; `key` as in a record of Redis, with
-- a tab and the code if one was claimed.
-- $1 coupons
SELECT coupon_id, user_id, slot, batch, idx, coalesce(key, '') || coalesce(E'\t' || code, '') AS key
FROM user_coupon
WHERE coupon_id = ANY ($1::bigint[])
ORDER BY coupon_id

-- rebuild_patience: Raises the statement timeout of the transaction: reading all rows of a large
-- coupon takes long.
SET LOCAL statement_timeout = '120s'

-- rebuild_rejected: The rejected receives of these batches.
-- $1 coupon, $2 batches
SELECT batch, idx FROM receive_rejected WHERE coupon_id = $1::bigint AND batch = ANY ($2::uuid[])

-- rebuild_revoked: Declares a cursor for the codes of a coupon that were revoked after a
-- revocation, unordered: 'SET.SERIAL', and 'SET' of a word or a revoked set.
-- $1 coupon, $2 above this revocation
DECLARE rebuild_revoked NO SCROLL CURSOR FOR
SELECT c.set_id || CASE WHEN s.kind = 'word' THEN '' ELSE '.' || c.serial END AS code
FROM code_set AS s JOIN code AS c ON c.set_id = s.id AND c.revocation_num > 0
	AND c.revocation_num > $2::bigint
WHERE s.coupon_id = $1::bigint
UNION ALL
SELECT id::text FROM code_set WHERE coupon_id = $1::bigint AND revocation_num > $2::bigint

-- rebuild_rows: Declares a cursor for the user coupons of a coupon, unordered; `key` as in a record
-- of Redis, with a tab and the code if one was claimed.
-- $1 coupon
DECLARE rebuild_rows NO SCROLL CURSOR FOR
SELECT user_id, slot, batch, idx, coalesce(key, '') || coalesce(E'\t' || code, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint

-- rebuild_seen: Stores the highest numbers of older generations in Redis and in the reports of
-- gateways. Changes nothing if another keeper was elected.
-- $1 coupons, $2 generations and $3 numbers: arrays of one length, $4 the keeper's fence
UPDATE coupon_generation AS g
SET seq_seen = seen.seq
FROM (SELECT coupon, generation, max(seq) AS seq
		FROM unnest($1::bigint[], $2::int[], $3::bigint[]) AS s (coupon, generation, seq)
		GROUP BY coupon, generation) AS seen,
	(SELECT fence FROM keeper WHERE fence = $4::bigint FOR SHARE) AS elected
WHERE g.coupon_id = seen.coupon AND g.generation = seen.generation AND g.seq_seen < seen.seq

-- rebuild_state: The number of the last rebuild request that is done, and its result.
-- $1 coupon
SELECT rebuild_done, coalesce(rebuild_told, '') AS rebuild_told FROM coupon WHERE id = $1::bigint
