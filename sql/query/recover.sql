-- couponctl recover; see docs/about/lifecycle.md.

-- recover_begin: Returns the generation in which the receives of a coupon are to be settled; NULL:
-- PostgreSQL does not have the coupon.
-- $1 coupon, $2 generation in Redis
SELECT coupon_recover_begin($1::bigint, $2::int) AS generation

-- recover_done: See the function.
-- $1 stripes, $2 their numbers in Redis: arrays of one length, $3 how, $4 how many transactions
-- were missing, $5 the server, $6 the one before ('': not known)
SELECT coupon_recover_done($1::smallint[], $2::bigint[], $3::text, $4::bigint, $5::text,
	$6::text)

-- recover_end: Corrects the counts of a coupon, and opens a new generation.
-- $1 coupon, $2 generation in Redis, $3 generations and $4 their highest numbers in Redis: arrays
-- of one length, $5 and $6 receives without an outcome, of that generation and of older ones
SELECT coupon_recover_end($1::bigint, $2::int, $3::int[], $4::bigint[], $5::bigint, $6::bigint)
	AS generation

-- recover_fence: Raises the fence above those in Redis.
-- $1 the highest fence in Redis
UPDATE keeper SET fence = greatest(fence, $1::bigint) + 1

-- recover_id_last: The last id that the sequence of coupon ids gave.
SELECT coalesce(pg_sequence_last_value('coupon_id_seq'), 1000) AS id

-- recover_ids: Advances the sequence of coupon ids.
-- $1 by how many
SELECT count(nextval('coupon_id_seq')) FROM generate_series(1, $1::bigint)

-- recover_left: The coupons that were loaded and that Redis does not hold.
-- $1 the coupons that it holds
SELECT c.id, c.status, c.settled_at IS NOT NULL AS is_settled
FROM coupon AS c
WHERE c.generation > 0
	AND NOT EXISTS (SELECT FROM unnest($1::bigint[]) AS r (id) WHERE r.id = c.id)
ORDER BY c.id

-- recover_last: The last recovery.
SELECT to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS "recovery.at",
	made_by AS "recovery.by", how AS "recovery.how", transactions AS "recovery.transactions",
	former AS "recovery.former", server AS "recovery.server"
FROM recovery ORDER BY id DESC LIMIT 1

-- recover_rejected: See the function.
-- $1 coupon, $2 batches, $3 indexes, $4 users, $5 slots, $6 reasons, $7 times of acceptance (ms),
-- $8 whether they hold a slot (1, 0): arrays of one length
SELECT ord
FROM coupon_recover_rejected($1::bigint, $2::uuid[], $3::smallint[], $4::text[], $5::smallint[],
	$6::text[], $7::bigint[], $8::smallint[]) AS ord

-- recover_revocation: Raises the number of the last revocation of codes to that of Redis: a rebuild
-- must not wait for revocations that PostgreSQL has lost.
-- $1 coupon, $2 the number in Redis
UPDATE coupon SET revocation_num = $2::bigint
WHERE id = $1::bigint AND revocation_num < $2::bigint

-- recover_revocation_cut: All that Redis has accepted, in this generation too, was accepted before
-- the revocations that PostgreSQL has.
-- $1 coupon, $2 generation
UPDATE code_revocation
SET generation = greatest(generation, $2::int), seq = NULL
WHERE coupon_id = $1::bigint

-- recover_session: See change_note(): until its end, nothing that the recovery does may count as a
-- change.
SELECT set_config('couponmq.recovering', 'on', false)

-- recover_tail: What of a coupon is never changed by settling. No row: it does not exist.
-- $1 coupon
SELECT generation, version, revocation_num FROM coupon WHERE id = $1::bigint

-- recover_uses: See the function use_recover().
-- $1 records
SELECT use_recover($1::text[]) AS missing

-- recover_uses_end: See the function; the budgets whose amounts are to be checked.
SELECT name FROM use_recover_end() AS name

-- recover_terms: Creates a coupon with the terms that Redis has, or gives it those terms if their
-- version is higher. No row: it has them, or later ones.
-- A budget that is missing is created, without an amount.
-- $1 coupon, $2 its row, as of to_jsonb()
WITH budget_added AS (
	INSERT INTO budget (name, currency, amount)
	SELECT budget, currency, 0
	FROM jsonb_populate_record(NULL::coupon, $2::jsonb)
	WHERE budget IS NOT NULL
	ON CONFLICT DO NOTHING
)
INSERT INTO coupon (id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from,
	valid_to, zone, currency, amount_off, percent_off, threshold, cap, budget, metadata,
	void_returns, events_on, tell_before, tags, hidden, status, pause_reason, version,
	created_at, updated_at)
SELECT id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from, valid_to,
	coalesce(zone, 'UTC'), currency, amount_off, percent_off, threshold, cap, budget, metadata,
	coalesce(void_returns, true), coalesce(events_on, false), tell_before,
	coalesce(tags, '{}'), coalesce(hidden, false), status, pause_reason, version, created_at,
	updated_at
FROM jsonb_populate_record(NULL::coupon, $2::jsonb)
WHERE id = $1::bigint
ON CONFLICT (id) DO UPDATE
SET name = excluded.name, total_num = excluded.total_num, user_limit = excluded.user_limit,
	begin_at = excluded.begin_at, end_at = excluded.end_at, valid_days = excluded.valid_days,
	valid_from = excluded.valid_from, valid_to = excluded.valid_to, zone = excluded.zone,
	currency = excluded.currency, amount_off = excluded.amount_off,
	percent_off = excluded.percent_off, threshold = excluded.threshold, cap = excluded.cap,
	budget = excluded.budget, metadata = excluded.metadata,
	void_returns = excluded.void_returns, events_on = excluded.events_on,
	tell_before = excluded.tell_before, tags = excluded.tags, hidden = excluded.hidden,
	status = excluded.status, pause_reason = excluded.pause_reason, version = excluded.version,
	updated_at = excluded.updated_at
WHERE coupon.version < excluded.version
RETURNING version, xmax = 0 AS is_new

-- recover_terms_hash: The same with the terms by which Redis decides, which may be newer than the
-- row that it has. A new coupon has no other name and no end of validity. Redis' end is that of
-- issuing, least(end_at, valid_to). If the row has the same, it keeps its own end_at. If it is
-- later than valid_to of the row, the validity was changed, and what it is now is not known: the
-- row gets none, with is_guess.
-- $1 coupon, $2 status in Redis, $3 total, $4 limit per user, $5 begin and $6 end (ms, 0 = no
-- bound), $7 version
WITH old AS (
	SELECT valid_to FROM coupon WHERE id = $1::bigint
)
INSERT INTO coupon (id, name, status, total_num, user_limit, begin_at, end_at, version)
SELECT $1::bigint, 'recovered ' || $1::bigint,
	CASE $2::text WHEN 'open' THEN 'published' ELSE $2::text END, $3::bigint, $4::int,
	timestamptz 'epoch' + nullif($5::bigint, 0) * interval '1 ms',
	timestamptz 'epoch' + nullif($6::bigint, 0) * interval '1 ms', $7::int
ON CONFLICT (id) DO UPDATE
SET status = excluded.status, total_num = excluded.total_num, user_limit = excluded.user_limit,
	begin_at = excluded.begin_at,
	end_at = CASE WHEN excluded.end_at = least(coupon.end_at, coupon.valid_to)
		THEN coupon.end_at ELSE excluded.end_at END,
	valid_from = CASE WHEN excluded.end_at <= coupon.valid_to THEN coupon.valid_from END,
	valid_to = CASE WHEN excluded.end_at <= coupon.valid_to THEN coupon.valid_to END,
	version = excluded.version, updated_at = now()
WHERE coupon.version < excluded.version
RETURNING version, xmax = 0 AS is_new,
	valid_to IS NULL AND (SELECT o.valid_to IS NOT NULL FROM old AS o) AS is_guess
