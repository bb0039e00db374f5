-- version: 1
-- function: settle(bigint[],int[],bigint[],uuid[],smallint[],text[],smallint[],text[],text[],bigint[],text[])
--
-- settle() records the outcome of each receive of some messages, in the caller's transaction.
--
-- Element i of the arrays is one receive. Coupons and batches may be mixed, and a receive may occur
-- twice. Only receives that were not newly issued are returned: `repeated`, or `rejected` with the
-- reason. On SQLSTATE 40001 the caller retries.
--
-- The isolation level must be READ COMMITTED, and each step is a separate statement, because each
-- must see the rows whose locks the step before it waited for:
--
--   0. take the exchange codes, if there are any, in the order of their sets and serials;
--   1. insert, in the order coupon, user, slot, so that two copies of a batch cannot deadlock:
--      first all rows or none, then, if that is not possible, those that are possible;
--   2. lock the coupons in the order of their ids; no user coupon is inserted after that;
--   3. under the lock, classify the receives that were not inserted, delete rows that must not
--      stay, write tombstones;
--   4. count.
--
-- Most calls concern one coupon in its current generation, and all their rows are inserted, within
-- the stock. Then the call ends after one UPDATE of all counts, which also takes the lock, if there
-- are no tombstones. Apart from its rows, a call costs its number of statements.
--
-- The events of coupons that have them on are written last (event_add(), and the triggers of the
-- tombstones). Coupons without events cost no further statement.
--
-- Every call waits for locks in the same order (codes by serial, user coupons by key, coupons by
-- id, tombstones by key), so no two calls deadlock.
--
-- The plans must not depend on the size of the tables at the start of the session, nor on that of
-- the arrays, for which the planner assumes ten elements. So the plans are generic, arrays are
-- joined by hash joins only, tables are read by index, and a table is looked up once per element by
-- a subquery with LIMIT, which the planner cannot turn into a join.
CREATE OR REPLACE FUNCTION settle(
	coupon     bigint[],
	generation int[],
	seq        bigint[],    -- each receive's own number
	batch      uuid[],
	idx        smallint[],
	user_id    text[],
	slot       smallint[],
	key        text[],      -- '' is none
	code       text[],      -- '' is none; no elements: there are none at all
	at_ms      bigint[],
	trace      text[])      -- for the events; '' is none; no elements: there are none at all
RETURNS TABLE (ord int, outcome text, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off    -- "off" above adds a huge cost, and JIT compiles every plan of a huge cost
AS $$
#variable_conflict use_column
DECLARE
	asked_num     int := cardinality(settle.coupon);
	is_uniform    boolean;     -- all of one coupon and one generation
	-- The coupons, ascending; of each the number of its receives, their highest number and
	-- their generation, NULL if they are of more than one.
	coupon_ids    bigint[];
	coupon_num    bigint[];
	coupon_seq    bigint[];
	coupon_generation int[];
	codes         text[];      -- as `code`, with NULL for ''; NULL: there are none at all
	traces        text[] := CASE WHEN cardinality(settle.trace) > 0 THEN settle.trace END;
	-- The elements that do not get their code, and why; NULL: there are none.
	bad_ord       bigint[];
	bad_reason    text[];

	-- The rows that this call inserted.
	own_num       bigint;
	own_coupon    bigint[];
	own_user      text[];
	own_slot      smallint[];

	-- The coupons that exist, as they are under the lock.
	locked_id     bigint[];
	locked_limit  int[];
	locked_left   bigint[];
	locked_generation int[];

	all_issued    boolean;
	has_events    boolean;     -- one of the coupons has events on
	-- From before the insert: which changes of terms it may have missed.
	seen          pg_snapshot := pg_current_snapshot();

	-- The state of each element, if not all were issued.
	judged_ord    bigint[];
	judged_first  bigint[];    -- the first element that is the same receive
	judged_state  text[];
	judged_reason text[];

	i             bigint;
	sums          record;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'settle() needs READ COMMITTED'
			USING ERRCODE = 'invalid_transaction_state';
	END IF;
	IF (asked_num = cardinality(settle.generation) AND asked_num = cardinality(settle.seq)
		AND asked_num = cardinality(settle.batch) AND asked_num = cardinality(settle.idx)
		AND asked_num = cardinality(settle.user_id) AND asked_num = cardinality(settle.slot)
		AND asked_num = cardinality(settle.key)
		AND cardinality(settle.code) IN (0, asked_num)
		AND cardinality(settle.trace) IN (0, asked_num)
		AND asked_num = cardinality(settle.at_ms)) IS NOT TRUE THEN
		RAISE EXCEPTION 'settle() needs arrays of one length'
			USING ERRCODE = 'array_subscript_error';
	END IF;
	-- A NULL in another array violates a NOT NULL constraint; in these it would not.
	IF array_position(settle.generation, NULL) IS NOT NULL
		OR array_position(settle.seq, NULL) IS NOT NULL
		OR array_position(settle.trace, NULL) IS NOT NULL THEN
		RAISE EXCEPTION 'settle() takes no NULL' USING ERRCODE = 'null_value_not_allowed';
	END IF;

	is_uniform := asked_num > 0
		AND settle.coupon[1] = ALL (settle.coupon)
		AND settle.generation[1] = ALL (settle.generation);
	IF is_uniform THEN
		coupon_ids := ARRAY[settle.coupon[1]];
		coupon_num := ARRAY[asked_num];
		coupon_generation := ARRAY[settle.generation[1]];
	ELSE
		SELECT coalesce(array_agg(id), '{}'), array_agg(num), array_agg(seq_most),
			array_agg(CASE WHEN generation_least = generation_most
				THEN generation_least END)
		INTO coupon_ids, coupon_num, coupon_seq, coupon_generation
		FROM (
			SELECT r.id, count(*) AS num, max(r.seq) AS seq_most,
				min(r.generation) AS generation_least,
				max(r.generation) AS generation_most
			FROM (SELECT unnest(settle.coupon) AS id, unnest(settle.seq) AS seq,
				unnest(settle.generation) AS generation) AS r
			GROUP BY r.id ORDER BY r.id
		) AS one_each;
	END IF;

	-- Step 0.
	IF cardinality(settle.code) > 0 THEN
		codes := array_replace(settle.code, '', NULL);
		SELECT array_agg(c.ord), array_agg(c.reason)
		INTO bad_ord, bad_reason
		FROM code_take(settle.coupon, settle.generation, settle.seq, settle.batch,
			settle.idx, settle.user_id, codes) AS c;
	END IF;

	-- Step 1. ON CONFLICT looks up each row before it inserts it, and locks it by a token: a
	-- third of what a row costs. So it is not used at first, and nothing is inserted unless all
	-- can be. The coupons are locked outside of this block: in it the lock would belong to a
	-- subtransaction, which nobody finds in pg_locks after its end.
	BEGIN
		IF is_uniform THEN
			INSERT INTO user_coupon
				(user_id, coupon_id, slot, batch, idx, key,
				received_at, valid_from, valid_to, code)
			SELECT r.user_id, c.id, r.slot, r.batch, r.idx, nullif(r.key, ''), r.at,
				coalesce(c.valid_from, r.at),
				-- Hours: the length of a day depends on the session's time zone.
				CASE WHEN c.valid_days IS NULL THEN c.valid_to
					ELSE r.at + c.valid_days * interval '24 hours' END,
				r.code
			FROM coupon AS c CROSS JOIN (
				-- In the select list the arrays are read in place; in FROM each
				-- would be copied first.
				SELECT unnest(settle.batch) AS batch, unnest(settle.idx) AS idx,
					unnest(settle.user_id) AS user_id,
					unnest(settle.slot) AS slot, unnest(settle.key) AS key,
					unnest(codes) AS code,
					timestamptz 'epoch'
						+ unnest(settle.at_ms) * interval '1 ms' AS at
			) AS r
			WHERE c.id = settle.coupon[1] AND r.slot BETWEEN 1 AND c.user_limit
			ORDER BY r.user_id COLLATE "C", r.slot;
		ELSE
			WITH known AS MATERIALIZED (
				SELECT c.id, c.user_limit, c.valid_days, c.valid_from, c.valid_to
				FROM coupon AS c
				WHERE c.id = ANY (coupon_ids)
			), r AS (
				SELECT unnest(settle.coupon) AS coupon,
					unnest(settle.batch) AS batch, unnest(settle.idx) AS idx,
					unnest(settle.user_id) AS user_id,
					unnest(settle.slot) AS slot, unnest(settle.key) AS key,
					unnest(codes) AS code,
					timestamptz 'epoch'
						+ unnest(settle.at_ms) * interval '1 ms' AS at
			)
			INSERT INTO user_coupon
				(user_id, coupon_id, slot, batch, idx, key,
				received_at, valid_from, valid_to, code)
			SELECT r.user_id, r.coupon, r.slot, r.batch, r.idx, nullif(r.key, ''), r.at,
				coalesce(c.valid_from, r.at),
				CASE WHEN c.valid_days IS NULL THEN c.valid_to
					ELSE r.at + c.valid_days * interval '24 hours' END,
				r.code
			FROM r JOIN known AS c ON c.id = r.coupon
			WHERE r.slot BETWEEN 1 AND c.user_limit
			ORDER BY r.coupon, r.user_id COLLATE "C", r.slot;
		END IF;
		GET DIAGNOSTICS own_num = ROW_COUNT;
		IF own_num < asked_num THEN
			RAISE unique_violation;
		END IF;
	EXCEPTION WHEN unique_violation THEN
		-- A receive whose tombstone is visible is not inserted: its row would take the slot
		-- from the receive that owns it. Later ones are found in step 3.
		WITH known AS MATERIALIZED (
			SELECT c.id, c.user_limit, c.valid_days, c.valid_from, c.valid_to,
				(SELECT true FROM receive_rejected AS t
					WHERE t.coupon_id = c.id LIMIT 1) AS is_suspect
			FROM coupon AS c
			WHERE c.id = ANY (coupon_ids)
		), r AS (
			SELECT unnest(settle.coupon) AS coupon, unnest(settle.batch) AS batch,
				unnest(settle.idx) AS idx, unnest(settle.user_id) AS user_id,
				unnest(settle.slot) AS slot, unnest(settle.key) AS key,
				unnest(codes) AS code,
				timestamptz 'epoch' + unnest(settle.at_ms) * interval '1 ms' AS at,
				generate_subscripts(settle.coupon, 1) AS ord
		), went_in AS (
			INSERT INTO user_coupon
				(user_id, coupon_id, slot, batch, idx, key,
				received_at, valid_from, valid_to, code)
			SELECT r.user_id, r.coupon, r.slot, r.batch, r.idx, nullif(r.key, ''), r.at,
				coalesce(c.valid_from, r.at),
				CASE WHEN c.valid_days IS NULL THEN c.valid_to
					ELSE r.at + c.valid_days * interval '24 hours' END,
				r.code
			FROM r JOIN known AS c ON c.id = r.coupon
			WHERE r.slot BETWEEN 1 AND c.user_limit
				AND CASE WHEN c.is_suspect THEN
					(SELECT true FROM receive_rejected AS t
					WHERE t.coupon_id = r.coupon AND t.batch = r.batch
						AND t.idx = r.idx LIMIT 1) IS NULL
					ELSE true END
			ORDER BY r.coupon, r.user_id COLLATE "C", r.slot, r.ord
			ON CONFLICT DO NOTHING
			RETURNING coupon_id, user_id, slot
		)
		SELECT count(*), array_agg(coupon_id), array_agg(user_id), array_agg(slot)
		INTO own_num, own_coupon, own_user, own_slot
		FROM went_in;
	END;

	-- Steps 2 to 4 of the common case.
	IF is_uniform AND own_num = asked_num AND bad_ord IS NULL THEN
		UPDATE coupon AS c
		SET issued_num = c.issued_num + asked_num,
			seq_seen = greatest(c.seq_seen,
				(SELECT max(n) FROM unnest(settle.seq) AS n)),
			settled_num = c.settled_num + asked_num,
			outcome_at = clock_timestamp()
		WHERE c.id = settle.coupon[1] AND c.generation = settle.generation[1]
			AND c.issued_num + asked_num <= c.total_num
		RETURNING c.events_on INTO has_events;
		IF FOUND THEN
			-- A separate statement: tombstones may have been written while the UPDATE
			-- waited.
			IF settle.batch[1] = ALL (settle.batch) THEN
				all_issued := NOT EXISTS (SELECT FROM receive_rejected AS t
					WHERE t.coupon_id = settle.coupon[1]
						AND t.batch = settle.batch[1]);
			ELSE
				all_issued := NOT EXISTS (SELECT FROM receive_rejected AS t
					WHERE t.coupon_id = settle.coupon[1])
					OR NOT EXISTS (
						SELECT FROM (SELECT DISTINCT b
							FROM unnest(settle.batch) AS b) AS one_each
						WHERE (SELECT true FROM receive_rejected AS t
							WHERE t.coupon_id = settle.coupon[1]
								AND t.batch = b LIMIT 1));
			END IF;
			-- Redis may have lost keys that PostgreSQL still has.
			IF all_issued AND settle.generation[1] > 1 THEN
				all_issued := NOT EXISTS (
					SELECT FROM unnest(settle.user_id, settle.slot, settle.key)
						AS r (user_id, slot, key)
					WHERE r.key <> '' AND (SELECT true FROM user_coupon AS u
						WHERE u.user_id = r.user_id
							AND u.coupon_id = settle.coupon[1]
							AND u.slot <> r.slot
							AND u.key = r.key LIMIT 1));
			END IF;
			IF all_issued THEN
				IF has_events THEN
					PERFORM event_add(coupon_ids, settle.coupon, settle.batch,
						settle.idx, settle.user_id, settle.slot, settle.key,
						settle.at_ms, NULL, seen, traces);
				END IF;
				RETURN;
			END IF;
			-- Undo the counts, which step 4 adds again. seq_seen stays: it includes
			-- the receives with a tombstone, and step 4 would set it for the others.
			UPDATE coupon AS c
			SET issued_num = c.issued_num - asked_num,
				settled_num = c.settled_num - asked_num
			WHERE c.id = settle.coupon[1];
		END IF;
	END IF;
	IF is_uniform THEN
		coupon_seq := ARRAY[(SELECT max(n) FROM unnest(settle.seq) AS n)];
	END IF;

	-- Step 2.
	SELECT coalesce(array_agg(id), '{}'), array_agg(user_limit),
		array_agg(total_num - issued_num), array_agg(generation), bool_or(events_on)
	INTO locked_id, locked_limit, locked_left, locked_generation, has_events
	FROM (SELECT id, user_limit, total_num, issued_num, generation, events_on FROM coupon
		WHERE id = ANY (coupon_ids) ORDER BY id FOR NO KEY UPDATE) AS locked;

	IF cardinality(locked_id) < cardinality(coupon_ids) THEN
		-- An unknown coupon has no row to lock. This lock prevents its creation until the
		-- transaction ends.
		PERFORM pg_advisory_xact_lock_shared('coupon'::regclass::int, 0);
		IF EXISTS (SELECT FROM coupon
			WHERE id = ANY (coupon_ids) AND id <> ALL (locked_id)) THEN
			RAISE EXCEPTION 'a coupon was created meanwhile'
				USING ERRCODE = 'serialization_failure';
		END IF;
	END IF;

	-- Step 3. Tombstones are written under the lock, so no others can appear from here on. The
	-- common case first: all rows were inserted, within the stock, no receive of these batches
	-- was rejected, and no user has the key with another slot: of later generations Redis may
	-- have lost keys that PostgreSQL still has.
	all_issued := own_num = asked_num AND bad_ord IS NULL
		AND NOT EXISTS (
			SELECT FROM unnest(coupon_ids, coupon_num) AS g (id, num)
				JOIN unnest(locked_id, locked_left) AS c (id, left_num)
					ON c.id = g.id
			WHERE g.num > c.left_num)
		AND (NOT EXISTS (SELECT FROM receive_rejected AS t
				WHERE t.coupon_id = ANY (coupon_ids))
			OR NOT EXISTS (
				SELECT FROM (SELECT DISTINCT c, b
					FROM unnest(settle.coupon, settle.batch) AS r (c, b)) AS r
				WHERE (SELECT true FROM receive_rejected AS t
					WHERE t.coupon_id = r.c AND t.batch = r.b LIMIT 1)))
		AND (1 >= ALL (locked_generation) OR NOT EXISTS (
			SELECT FROM unnest(settle.coupon, settle.user_id, settle.slot, settle.key)
				AS r (coupon, user_id, slot, key)
				JOIN unnest(locked_id, locked_generation)
					AS c (id, generation) ON c.id = r.coupon
			WHERE r.key <> '' AND c.generation > 1
				AND (SELECT true FROM user_coupon AS u
				WHERE u.user_id = r.user_id AND u.coupon_id = r.coupon
					AND u.slot <> r.slot AND u.key = r.key LIMIT 1)));

	IF NOT all_issued THEN
		IF own_num = asked_num THEN
			own_coupon := settle.coupon;
			own_user := settle.user_id;
			own_slot := settle.slot;
		END IF;
		-- issued    inserted by this call; the row stays
		-- doubled   inserted by this call, but the user has another coupon with the same
		--           key, or it does not get its code: the row is deleted, a tombstone is
		--           written
		-- surplus   inserted by this call, but the stock is used up: the row is deleted, a
		--           tombstone is written
		-- undone    inserted by this call, but it has a tombstone: the row is deleted
		-- stored    issued earlier
		-- recorded  rejected earlier
		-- refused   rejected by this call: a tombstone is written
		-- lost      the row that prevented the insert no longer exists
		-- copy      the same receive as an earlier element
		WITH r AS (
			SELECT r.*, min(r.ord) OVER (
				PARTITION BY r.coupon, r.batch, r.idx, r.user_id, r.slot) AS first
			FROM unnest(settle.coupon, settle.generation, settle.seq, settle.batch,
					settle.idx, settle.user_id, settle.slot, settle.key)
				WITH ORDINALITY AS r (coupon, generation, seq, batch,
					idx, user_id, slot, key, ord)
		), found AS (
			SELECT r.*, c.id IS NOT NULL AS known,
				r.slot BETWEEN 1 AND c.user_limit AS slot_valid, c.left_num,
				holder.batch IS NOT NULL AS held,
				coalesce(holder.batch = r.batch AND holder.idx = r.idx, false)
					AS stored,
				own.coupon IS NOT NULL AS own,
				r.key <> '' AND c.generation > 1 AS is_keyed,
				tombstone.reason AS recorded, bad.reason AS code_reason
			FROM r
				LEFT JOIN unnest(bad_ord, bad_reason) AS bad (ord, reason)
					ON bad.ord = r.ord
				LEFT JOIN
					unnest(locked_id, locked_limit, locked_left,
						locked_generation)
					AS c (id, user_limit, left_num, generation)
					ON c.id = r.coupon
				LEFT JOIN unnest(own_coupon, own_user, own_slot)
					AS own (coupon, user_id, slot)
					ON own.coupon = r.coupon AND own.user_id = r.user_id
						AND own.slot = r.slot
				LEFT JOIN LATERAL (SELECT u.batch, u.idx FROM user_coupon AS u
					WHERE u.user_id = r.user_id AND u.coupon_id = r.coupon
						AND u.slot = r.slot
					LIMIT 1) AS holder ON true
				LEFT JOIN LATERAL (SELECT t.reason FROM receive_rejected AS t
					WHERE t.coupon_id = r.coupon AND t.batch = r.batch
						AND t.idx = r.idx
					LIMIT 1) AS tombstone ON true
		), first_look AS (
			SELECT found.*,
				CASE WHEN ord <> first THEN 'copy'
					WHEN stored AND own AND recorded IS NOT NULL THEN 'undone'
					WHEN stored AND own THEN 'issued'
					WHEN stored THEN 'stored'
					WHEN recorded IS NOT NULL THEN 'recorded'
					WHEN known AND slot_valid AND NOT held THEN 'lost'
					ELSE 'refused' END AS state
			FROM found
		), keys_looked AS (
			SELECT first_look.*,
				state = 'issued' AND (code_reason IS NOT NULL OR is_keyed AND (
					row_number() OVER (
						PARTITION BY coupon, user_id, key, state = 'issued'
						ORDER BY generation, seq, ord) > 1
					OR (SELECT true FROM user_coupon AS u
						WHERE u.user_id = first_look.user_id
							AND u.coupon_id = first_look.coupon
							AND u.slot <> first_look.slot
							AND u.key = first_look.key
							AND NOT EXISTS (SELECT FROM
								unnest(own_coupon, own_user,
									own_slot)
									AS o (coupon, user_id, slot)
								WHERE o.coupon = u.coupon_id
									AND o.user_id = u.user_id
									AND o.slot = u.slot)
						LIMIT 1) IS NOT NULL)) AS doubled
			FROM first_look
		), second_look AS (
			SELECT keys_looked.*,
				state = 'issued' AND NOT doubled AND row_number() OVER (
					PARTITION BY coupon, state = 'issued' AND NOT doubled
					ORDER BY generation, seq, ord) > left_num AS surplus
			FROM keys_looked
		), slots AS (
			SELECT second_look.*,
				bool_or(surplus) OVER by_slot AS slot_surplus,
				bool_or(state = 'undone') OVER by_slot AS slot_undone
			FROM second_look
			WINDOW by_slot AS (PARTITION BY coupon, user_id, slot)
		)
		SELECT array_agg(ord ORDER BY ord), array_agg(first ORDER BY ord),
			array_agg(CASE WHEN doubled THEN 'doubled'
				WHEN surplus THEN 'surplus'
				-- The slot becomes free because another receive is undone: a retry
				-- issues this one. If this call rejects the other, a retry would do
				-- the same again.
				WHEN state = 'refused' AND slot_undone THEN 'lost'
				ELSE state END ORDER BY ord),
			array_agg(CASE WHEN recorded IS NOT NULL THEN recorded
				WHEN doubled THEN coalesce(code_reason, 'key_taken')
				WHEN NOT known THEN 'unknown_coupon'
				WHEN NOT slot_valid THEN 'slot_invalid'
				WHEN slot_surplus THEN 'out_of_stock'
				ELSE 'slot_taken' END ORDER BY ord)
		INTO judged_ord, judged_first, judged_state, judged_reason
		FROM slots;

		IF 'lost' = ANY (judged_state) THEN
			RAISE EXCEPTION 'a user coupon disappeared meanwhile'
				USING ERRCODE = 'serialization_failure';
		END IF;

		IF codes IS NOT NULL THEN
			PERFORM code_free(array_agg(r.coupon), array_agg(r.batch), array_agg(r.idx),
				array_agg(r.code))
			FROM unnest(settle.coupon, settle.batch, settle.idx, codes)
					WITH ORDINALITY AS r (coupon, batch, idx, code, ord)
				JOIN unnest(judged_ord, judged_state) AS j (ord, state)
					ON j.ord = r.ord
			WHERE j.state NOT IN ('issued', 'stored', 'copy');
		END IF;

		-- This transaction inserted these rows, so it does not wait for a lock.
		FOR i IN
			SELECT j.ord FROM unnest(judged_ord, judged_state) AS j (ord, state)
			WHERE j.state IN ('surplus', 'undone', 'doubled')
		LOOP
			DELETE FROM user_coupon AS u
			WHERE u.user_id = settle.user_id[i] AND u.coupon_id = settle.coupon[i]
				AND u.slot = settle.slot[i];
		END LOOP;

		-- Two calls may reject the same receive of an unknown coupon concurrently; hence
		-- the order and DO NOTHING.
		INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,
			received_at, trace)
		SELECT r.coupon, r.batch, r.idx, r.user_id, r.slot, j.reason,
			timestamptz 'epoch' + r.at_ms * interval '1 ms', nullif(r.trace, '')
		FROM unnest(settle.coupon, settle.batch, settle.idx, settle.user_id, settle.slot,
				settle.at_ms, traces)
				WITH ORDINALITY AS r (coupon, batch, idx, user_id, slot, at_ms,
					trace, ord)
			JOIN unnest(judged_ord, judged_state, judged_reason)
				AS j (ord, state, reason) ON j.ord = r.ord
		WHERE j.state IN ('surplus', 'refused', 'doubled')
		ORDER BY r.coupon, r.batch, r.idx, r.ord
		ON CONFLICT DO NOTHING;
	END IF;

	-- Step 4. If all are of current generations, one statement counts them.
	IF all_issued AND coupon_generation = locked_generation THEN
		UPDATE coupon AS c
		SET issued_num = c.issued_num + g.num, seq_seen = greatest(c.seq_seen, g.seq),
			settled_num = c.settled_num + g.num, outcome_at = clock_timestamp()
		FROM unnest(coupon_ids, coupon_num, coupon_seq) AS g (id, num, seq)
		WHERE c.id = g.id AND c.id = ANY (coupon_ids);
		IF has_events THEN
			PERFORM event_add(coupon_ids, settle.coupon, settle.batch, settle.idx,
				settle.user_id, settle.slot, settle.key, settle.at_ms, NULL, seen,
				traces);
		END IF;
		RETURN;
	END IF;

	-- Redis counts receives of other generations as reserved. The keeper applies their outcomes
	-- there from coupon_late, each once, in the order of the numbers that are assigned here
	-- under the lock.
	WITH added AS (
		INSERT INTO coupon_late (coupon_id, num, generation, seq, user_id, slot, batch, idx,
			key, reason)
		SELECT c.id, c.late_num + row_number() OVER (PARTITION BY c.id ORDER BY r.ord),
			r.generation, r.seq, r.user_id, r.slot, r.batch, r.idx,
			r.key || coalesce(E'\t' || r.code, ''),
			CASE WHEN all_issued OR j.state = 'issued' THEN NULL ELSE j.reason END
		FROM unnest(settle.coupon, settle.generation, settle.seq, settle.user_id,
				settle.slot, settle.batch, settle.idx, settle.key, codes)
				WITH ORDINALITY AS r (coupon, generation, seq, user_id, slot, batch,
					idx, key, code, ord)
			JOIN unnest(locked_id, locked_generation) AS l (id, generation)
				ON l.id = r.coupon AND l.generation > 0
					AND l.generation <> r.generation
			JOIN coupon AS c ON c.id = l.id
			LEFT JOIN unnest(judged_ord, judged_state, judged_reason)
				AS j (ord, state, reason) ON j.ord = r.ord
		WHERE c.id = ANY (coupon_ids)
			AND (all_issued OR j.state IN ('issued', 'surplus', 'refused', 'doubled'))
		RETURNING coupon_id
	)
	UPDATE coupon AS c
	SET late_num = c.late_num + late.num
	FROM (SELECT coupon_id, count(*) AS num FROM added GROUP BY coupon_id) AS late
	WHERE c.id = late.coupon_id AND c.id = ANY (coupon_ids);

	FOR sums IN
		SELECT r.coupon, r.generation, max(r.seq) AS seq_max, count(*) AS settled_num,
			count(*) FILTER (WHERE all_issued OR j.state = 'issued') AS issued_num
		FROM unnest(settle.coupon, settle.generation, settle.seq)
				WITH ORDINALITY AS r (coupon, generation, seq, ord)
			LEFT JOIN unnest(judged_ord, judged_state)
				AS j (ord, state) ON j.ord = r.ord
		WHERE all_issued OR j.state IN ('issued', 'surplus', 'refused', 'doubled')
		GROUP BY r.coupon, r.generation
	LOOP
		UPDATE coupon AS c
		SET issued_num = c.issued_num + sums.issued_num,
			seq_seen = CASE WHEN c.generation = sums.generation
				THEN greatest(c.seq_seen, sums.seq_max)
				ELSE c.seq_seen END,
			settled_num = CASE WHEN c.generation = sums.generation
				THEN c.settled_num + sums.settled_num
				ELSE c.settled_num END,
			outcome_at = clock_timestamp()
		WHERE c.id = sums.coupon;

		-- The row of generation 0 has the sums of the folded generations; see
		-- coupon_generation_open(). A receive that arrives although its number was given up
		-- raises seq_seen: more receives than numbers would never count as settled.
		INSERT INTO coupon_generation AS g (coupon_id, generation, seq_seen, settled_num,
			outcome_at)
		SELECT c.id, CASE WHEN is_folded THEN 0 ELSE sums.generation END,
			CASE WHEN is_folded THEN sums.settled_num ELSE sums.seq_max END,
			sums.settled_num, clock_timestamp()
		FROM coupon AS c
			CROSS JOIN LATERAL (
				SELECT sums.generation BETWEEN 1 AND c.generation_folded
			) AS f (is_folded)
		WHERE c.id = sums.coupon AND c.generation <> sums.generation
		ON CONFLICT (coupon_id, generation) DO UPDATE
		SET seq_seen = greatest(g.seq_seen, excluded.seq_seen,
				g.settled_num + excluded.settled_num),
			settled_num = g.settled_num + excluded.settled_num,
			outcome_at = excluded.outcome_at;
	END LOOP;

	IF has_events THEN
		PERFORM event_add(coupon_ids, settle.coupon, settle.batch, settle.idx,
			settle.user_id, settle.slot, settle.key, settle.at_ms, judged_state, seen,
			traces);
	END IF;

	IF NOT all_issued THEN
		RETURN QUERY
		SELECT j.ord::int,
			CASE WHEN f.state IN ('issued', 'stored') THEN 'repeated'
				ELSE 'rejected' END,
			CASE WHEN f.state IN ('issued', 'stored') THEN NULL ELSE f.reason END
		FROM unnest(judged_ord, judged_first, judged_state) AS j (ord, first, state)
			JOIN unnest(judged_ord, judged_state, judged_reason)
				AS f (ord, state, reason) ON f.ord = j.first
		WHERE j.state <> 'issued'
		ORDER BY j.ord;
	END IF;
END
$$;
