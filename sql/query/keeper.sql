-- What the keeper reads and writes, but for rebuilds. `fence`: see docs/about/lifecycle.md.

-- coupon_ended_set: Closes a coupon whose end has passed, unless its terms have changed since the
-- keeper read them. Closing is final and Redis' clock may be wrong, so PostgreSQL's clock is
-- compared as well. Returns whether this keeper is still elected, and whether the coupon was
-- closed.
-- $1 coupon, $2 the version of its terms, $3 the keeper's fence
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $3::bigint FOR SHARE
), closed AS (
	UPDATE coupon
	SET status = 'closed', version = version + 1, updated_at = now()
	FROM elected
	WHERE id = $1::bigint AND status IN ('published', 'paused') AND version = $2::int
		AND least(end_at, valid_to) <= now()
	RETURNING id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM closed) AS is_closed

-- coupon_expires_set: Records when the keys of a settled coupon expire in Redis. The keeper's
-- sweeps then skip the coupon. Returns whether this keeper is still elected, and whether the time
-- was recorded.
-- $1 coupon, $2 the keeper's fence, $3 milliseconds from now
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE
), recorded AS (
	UPDATE coupon
	SET expires_at = now() + $3::bigint * interval '1 ms'
	FROM elected
	WHERE id = $1::bigint AND status = 'closed' AND settled_at IS NOT NULL
	RETURNING id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM recorded) AS is_recorded

-- coupon_expiring_page: A page of closed and settled coupons whose keys are still in Redis, to be
-- verified after a restart of Redis.
-- $1 and $2 after this time (text, exact) and id, $3 limit
SELECT id, generation, seq_seen, expires_at::text AS expires_at
FROM coupon
WHERE settled_at IS NOT NULL AND expires_at IS NOT NULL
	AND (expires_at, id) > (greatest($1::timestamptz, now()), $2::bigint)
ORDER BY expires_at, id
LIMIT $3::int

-- coupon_generation_open: Opens a new generation and returns its number. No row: another keeper was
-- elected, or the generation is not the expected one.
-- $1 coupon, $2 expected generation, $3 generation in Redis (0: none), $4 the keeper's fence
SELECT generation
FROM coupon_generation_open($1::bigint, $2::int, $3::int, $4::bigint) AS generation
WHERE generation IS NOT NULL

-- coupon_generation_page: The counts of the older generations of a coupon; generation 0 has the
-- sums of those that are folded. idle_ms: since the last outcome, or the end of the generation;
-- NULL: that time is in the future.
-- $1 coupon
SELECT generation, seq_seen, settled_num,
	CASE WHEN outcome_at <= clock_timestamp()
		THEN floor(extract(epoch FROM clock_timestamp() - outcome_at) * 1000)::bigint
		END AS idle_ms
FROM coupon_generation
WHERE coupon_id = $1::bigint
ORDER BY generation

-- coupon_page: A page of the coupons that the keeper watches, in the order of their ids. A closed
-- coupon is included until it is settled and its keys expire, because receives of it may be in
-- flight. Times in ms since the epoch, 0 = no bound.
-- $1 after this id, $2 limit, $3 only these ids (NULL: all)
SELECT id, status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM least(end_at, valid_to)) * 1000)::bigint, 0) AS end_ms,
	generation, seq_seen, settled_num, rebuild_asked, rebuild_done,
	EXISTS (SELECT FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.freed_at IS NULL) AS is_pending,
	settled_at IS NOT NULL AS is_settled,
	EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = coupon.id) AS is_late,
	revocation_num
FROM coupon
WHERE (status IN ('published', 'paused')
		OR (status = 'closed' AND (settled_at IS NULL OR expires_at IS NULL)))
	AND id > $1::bigint
	AND ($3::bigint[] IS NULL OR id = ANY ($3::bigint[]))
ORDER BY id
LIMIT $2::int

-- coupon_settled_set: Marks a closed coupon as settled if PostgreSQL has an outcome for every
-- receive that Redis has accepted, and no rejected receive is to be freed. Returns whether this
-- keeper is still elected, and whether the coupon is settled, marked now or before.
-- $1 coupon, $2 the keeper's fence, $3 generation and $4 last receive number in Redis,
-- $5 and $6 arrays: the generations in Redis, and the highest number of each
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE
), owed AS (
	-- The older generations whose settled receives are fewer than their highest number, in
	-- PostgreSQL or in Redis. They are more if a receive arrived whose number was given up.
	SELECT FROM coupon_generation AS g
		LEFT JOIN unnest($5::int[], $6::bigint[]) AS high (generation, seq)
			USING (generation)
	WHERE g.coupon_id = $1::bigint AND g.settled_num < greatest(g.seq_seen, high.seq)
	UNION ALL
	SELECT FROM unnest($5::int[], $6::bigint[]) AS high (generation, seq)
	WHERE high.seq > 0 AND high.generation <> $3::int AND NOT EXISTS (
		SELECT FROM coupon_generation AS g
		WHERE g.coupon_id = $1::bigint AND g.generation = high.generation)
), settled AS (
	UPDATE coupon
	SET settled_at = coalesce(settled_at, now()),
		expires_at = CASE WHEN settled_at IS NOT NULL THEN expires_at END
	FROM elected
	WHERE id = $1::bigint AND status = 'closed' AND generation = $3::int
		AND settled_num = $4::bigint AND seq_seen = $4::bigint
		AND NOT EXISTS (SELECT FROM owed)
		AND rebuild_asked = rebuild_done
		AND NOT EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = coupon.id)
		AND NOT EXISTS (SELECT FROM receive_rejected AS t
			WHERE t.coupon_id = coupon.id AND t.freed_at IS NULL)
	RETURNING id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM settled) AS is_settled

-- coupon_terms: The whole rows of coupons, to be copied to Redis.
-- $1 coupons
SELECT id, version, to_jsonb(c)::text AS terms
FROM coupon AS c
WHERE id = ANY ($1::bigint[])
ORDER BY id

-- gateway_rows: The gateway processes: whether each is gone, and the seconds since it was heard of.
-- One that goes later than gateway_alive() lets it went before the clock was set back.
-- $1 how many at most
SELECT id, coalesce(gone_at NOT BETWEEN now() AND now() + interval '7 seconds', false),
	floor(extract(epoch FROM now() - seen_at))::bigint
FROM gateway
ORDER BY gone_at DESC NULLS FIRST
LIMIT $1::int

-- keeper_fence: Returns the fence of a newly elected keeper, or of one whose Redis is another
-- process. It is higher than all earlier ones.
-- $1 the run id of Redis
UPDATE keeper SET fence = fence + 1, run_id = $1 RETURNING fence

-- late_counted: Deletes a coupon's late outcomes that Redis has counted, up to this number. Deletes
-- nothing if another keeper was elected.
-- $1 coupon, $2 number, $3 the keeper's fence
DELETE FROM coupon_late
USING (SELECT fence FROM keeper WHERE fence = $3::bigint FOR SHARE) AS elected
WHERE coupon_id = $1::bigint AND num <= $2::bigint

-- late_page: A page of the late outcomes that Redis has not counted, in their order. is_over: the
-- coupon will never be in Redis again.
-- $1 after this coupon, $2 and this number, $3 limit
SELECT l.coupon_id, l.user_id, l.slot, l.batch, l.idx, l.key, coalesce(l.reason, '') AS reason,
	coalesce((SELECT c.settled_at IS NOT NULL FROM coupon AS c WHERE c.id = l.coupon_id), true)
		AS is_over,
	l.num, l.generation, l.seq
FROM coupon_late AS l
WHERE (l.coupon_id, l.num) > ($1::bigint, $2::bigint)
ORDER BY l.coupon_id, l.num
LIMIT $3::int

-- slot_free_again: Marks all rejected receives of these coupons as not freed, because a restarted
-- Redis may have lost that. Freeing a slot again changes nothing where it is free. Returns of each
-- coupon, in their order, the last late outcome that Redis must have counted.
-- $1 coupons, $2 the keeper's fence
WITH again AS (
	UPDATE receive_rejected
	SET freed_at = NULL
	FROM (SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE) AS elected
	WHERE coupon_id = ANY ($1::bigint[]) AND freed_at IS NOT NULL
)
SELECT coalesce(late_num, 0) -
	(SELECT count(*) FROM coupon_late AS l WHERE l.coupon_id = ids.id) AS late_least
FROM unnest($1::bigint[]) WITH ORDINALITY AS ids (id, place)
LEFT JOIN coupon ON coupon.id = ids.id
ORDER BY ids.place

-- slot_free_done: Marks these rejected receives as freed in this process of Redis. Nothing if it
-- is not that of the keeper: slot_free_again may have been before. Skips rows that another worker
-- has locked.
-- $1 coupons, $2 batches, $3 indexes: arrays of one length, $4 the run id of Redis
WITH followed AS (
	SELECT FROM keeper WHERE run_id = $4 FOR SHARE
), mine AS (
	SELECT t.coupon_id, t.batch, t.idx
	FROM followed,
		unnest($1::bigint[], $2::uuid[], $3::smallint[]) AS r (coupon_id, batch, idx)
		JOIN receive_rejected AS t USING (coupon_id, batch, idx)
	WHERE t.freed_at IS NULL
	FOR UPDATE OF t SKIP LOCKED
)
UPDATE receive_rejected AS t
SET freed_at = now()
FROM mine
WHERE t.coupon_id = mine.coupon_id AND t.batch = mine.batch AND t.idx = mine.idx

-- slot_free_pending: A page of the rejected receives that are not freed, in the order of coupon,
-- batch and index, each with the receive that has its slot in PostgreSQL (holder_batch NULL: none).
-- is_over: the coupon will never be in Redis again.
-- $1 $2 $3 after this coupon, batch and index, $4 limit
SELECT t.coupon_id, t.user_id, t.slot, t.batch, t.idx,
	coalesce(holder.key, '') || coalesce(E'\t' || holder.code, '') AS holder_key, t.reason,
	coalesce((SELECT c.generation = 0 OR c.settled_at IS NOT NULL FROM coupon AS c
		WHERE c.id = t.coupon_id), true) AS is_over,
	holder.batch AS holder_batch, holder.idx AS holder_idx
FROM (
	SELECT coupon_id, batch, idx, user_id, slot, reason
	FROM receive_rejected
	WHERE freed_at IS NULL
		AND (coupon_id, batch, idx) > ($1::bigint, $2::uuid, $3::smallint)
	ORDER BY coupon_id, batch, idx
	LIMIT $4::int
) AS t LEFT JOIN LATERAL (
	SELECT u.batch, u.idx, u.key, u.code FROM user_coupon AS u
	WHERE u.user_id = t.user_id AND u.coupon_id = t.coupon_id AND u.slot = t.slot
	LIMIT 1
) AS holder ON true
ORDER BY t.coupon_id, t.batch, t.idx
