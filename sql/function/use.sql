-- version: 1
-- function: use(text[],text[],text[],text[],int[],bigint[],text[],text[],int[],bigint[],text[],uuid[],smallint[],text[])
--
-- use() executes operations on receives (hold, use, release, rollback) in the caller's transaction.
-- Each concerns one receive or several, of which all change or none.
--
-- Element i of the first eight arrays, and of the last one, is operation i; of the others, one
-- receive of operation `op`.
-- A receive without batch and index is any one of the user: that on which the operation was
-- executed before, that of this order, one that can be had, or that of the lowest slot; if it was
-- voided, only where there is no other to be held or used. Such an operation has no other receives.
--
-- A row is returned for each receive: what became of it, as in use_operation.result, or
-- 'key_taken'; what the operation has set; and its record for Redis if it changed the receive. An
-- operation that was executed before does nothing, and returns the same again, with what the
-- receive is now: 'free', 'held', 'used', 'voided' or 'not_found', whether it is that of the order,
-- and until when it is held. On SQLSTATE 40001 the caller retries.
--
-- A rollback with an amount gives back this part of the discount, and the receive stays used. A use
-- by the order that has used the receive, with another amount, takes the difference.
--
-- 'key_taken': who asks has used the key for this action of another order, on other receives, or
-- with another amount or currency; or anybody on one of these receives. Of two such operations in
-- concurrent calls, on different receives, the second waits for the first in the index of keys.
--
-- The isolation level must be READ COMMITTED, and each step is a separate statement, because each
-- must see the rows whose locks the step before it waited for:
--
--   1. use_begin(): lock the receives; one that no order has named yet gets its row;
--   2. lock the budgets, too; execute at once the operations that nothing stands in the way of;
--      free the receives whose hold has ended;
--   3. judge the others, and write what they change: those first that no earlier one precedes
--      on a receive of the same user and coupon, nor with the same key on the same receive;
--      then those that these have kept waiting.
--
-- So no two calls deadlock, unless a campaign gets another budget between 1 and 2, or two keys are
-- used for two requests each, in opposite order: then one of them is retried. The clock is read
-- when all locks are held. A hold that has expired by then has no effect: its end is a separate
-- operation, before those on the receive.
--
-- Plans: see settle().
CREATE OR REPLACE FUNCTION use(
	action   text[],
	order_id text[],
	key      text[],
	by_key   text[],     -- '' is none, as in the next four; 0 in ttl_s
	ttl_s    int[],      -- of a hold
	amount   bigint[],   -- of the order; of a rollback the part; NULL: not told, or all
	currency text[],
	reason   text[],
	op       int[],
	coupon   bigint[],
	user_id  text[],
	batch    uuid[],     -- NULL: any receive of the user
	idx      smallint[],
	trace    text[])     -- for the events; '' is none; no elements: there are none at all
RETURNS TABLE (of_op int, result text, coupon_id bigint, of_user text, of_batch uuid,
	of_idx smallint, until_ms bigint, amount_off bigint, of_currency text, now_state text,
	now_is_own boolean, now_until_ms bigint, record text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	ops_num   int := cardinality(use.action);
	all_num   int := cardinality(use.op);
	r         record;     -- the receives, by id; when the first hold ends; their budgets
	k         record;     -- their coupons
	budgets   text[];     -- in the order of their names; NULL: none is concerned
	room      bigint[];   -- what is left of each; NULL: not read
	is_freed  boolean := false; -- ended holds reserve nothing any more
	moment    timestamptz;
	todo      int[];      -- the operations that are not executed yet, in their order
	todo_num  int;
	look_num  int;        -- how many of them to look at
	done_num  int;
	j         record;     -- the receives of the operations that are judged
	replayed  int[] := '{}'; -- the operations that were executed before
	reused    int[] := '{}'; -- those whose key is of another one, with none of their receives
	spent_ops int[];      -- those for which a budget has no room
	left_now  bigint[];
	place     int;
	added_num bigint;
	told      use_operation[]; -- NULL: there is no event
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'use() needs READ COMMITTED'
			USING ERRCODE = 'invalid_transaction_state';
	END IF;
	IF (ops_num = cardinality(use.order_id) AND ops_num = cardinality(use.key)
		AND ops_num = cardinality(use.by_key) AND ops_num = cardinality(use.ttl_s)
		AND ops_num = cardinality(use.amount) AND ops_num = cardinality(use.currency)
		AND ops_num = cardinality(use.reason) AND all_num = cardinality(use.coupon)
		AND all_num = cardinality(use.user_id) AND all_num = cardinality(use.batch)
		AND all_num = cardinality(use.idx)
		AND cardinality(use.trace) IN (0, ops_num)) IS NOT TRUE THEN
		RAISE EXCEPTION 'use() needs arrays of one length'
			USING ERRCODE = 'array_subscript_error';
	END IF;
	IF all_num > ops_num AND EXISTS (
		SELECT FROM unnest(use.op, use.coupon, use.batch, use.idx)
			AS e (op, coupon, batch, idx)
		GROUP BY e.op, e.coupon, e.batch, e.idx HAVING count(*) > 1) THEN
		RAISE EXCEPTION 'an operation names a receive twice'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;

	todo := use_begin(use.action, use.order_id, use.key, use.by_key, use.ttl_s, use.amount,
		use.currency, use.reason, use.op, use.coupon, use.user_id, use.batch, use.idx,
		use.trace);

	-- One that was issued while use_begin() waited, and that others have named, is locked
	-- here, unless they have: they may wait for the budgets. A void that gave its slot back has
	-- removed the row of user_coupon.
	SELECT coalesce(array_agg(f.coupon), '{}') AS coupon, array_agg(f.batch) AS batch,
		array_agg(f.idx) AS idx, array_agg(f.user_id) AS user_id,
		array_agg(f.slot) AS slot, array_agg(f.valid_from) AS valid_from,
		array_agg(f.valid_to) AS valid_to, min(s.until) AS until,
		array_agg(s.budget) FILTER (WHERE s.budget IS NOT NULL) AS budget,
		count(*) - count(s.place) AS others_num
	INTO r
	FROM (
		SELECT DISTINCT e.coupon, f.batch, f.idx, e.user_id, f.slot, f.valid_from,
			f.valid_to
		FROM unnest(use.op, use.coupon, use.user_id, use.batch, use.idx)
				AS e (op, coupon, user_id, batch, idx)
			JOIN unnest(todo) AS t (op) ON t.op = e.op
			CROSS JOIN LATERAL (
				SELECT u.batch, u.idx, u.slot, u.valid_from, u.valid_to
				FROM user_coupon AS u
				WHERE u.user_id = e.user_id AND u.coupon_id = e.coupon
					AND (e.batch IS NULL
						OR (u.batch = e.batch AND u.idx = e.idx))
				UNION ALL
				SELECT v.batch, v.idx, v.slot, NULL, NULL
				FROM coupon_void AS v
				WHERE v.coupon_id = e.coupon AND v.user_id = e.user_id
					AND (e.batch IS NULL
						OR (v.batch = e.batch AND v.idx = e.idx))
					AND v.is_returned
				LIMIT 1000
			) AS f
		ORDER BY 1, 2, 3
	) AS f CROSS JOIN LATERAL (
		SELECT FROM receive_use AS s
		WHERE s.coupon_id = f.coupon AND s.batch = f.batch AND s.idx = f.idx
		LIMIT 1
	) AS named LEFT JOIN LATERAL (
		SELECT s.ctid AS place, s.until, s.budget FROM receive_use AS s
		WHERE s.coupon_id = f.coupon AND s.batch = f.batch AND s.idx = f.idx
		LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
	) AS s ON true;
	IF r.others_num > 0 THEN
		RAISE EXCEPTION 'a receive was issued and named by others meanwhile'
			USING ERRCODE = 'serialization_failure';
	END IF;

	IF todo <> '{}' THEN
		SELECT array_agg(c.id) AS id, array_agg(c.currency) AS currency,
			array_agg(c.amount_off) AS amount_off,
			array_agg(c.percent_off) AS percent_off,
			array_agg(c.threshold) AS threshold, array_agg(c.cap) AS cap,
			array_agg(c.budget) AS budget,
			array_agg(c.id) FILTER (WHERE c.events_on) AS event_ids
		INTO k
		FROM coupon AS c WHERE c.id = ANY (r.coupon);

		-- Step 2.
		SELECT array_agg(b.name) INTO budgets
		FROM (
			SELECT b.name FROM budget AS b WHERE b.name = ANY (k.budget || r.budget)
			ORDER BY b.name FOR NO KEY UPDATE
		) AS b;
		moment := clock_timestamp();
		IF r.until <= moment THEN
			PERFORM use_expire(array_agg(s.ctid), moment)
			FROM unnest(r.coupon, r.batch, r.idx) AS f (coupon, batch, idx)
				CROSS JOIN LATERAL (
					SELECT s.ctid, s.until FROM receive_use AS s
					WHERE s.coupon_id = f.coupon AND s.batch = f.batch
						AND s.idx = f.idx
					LIMIT 1
				) AS s
			WHERE s.until <= moment;
		END IF;
	END IF;

	-- Step 3. Where most would wait for a few each time, not all are looked at: many of one
	-- receive would cost their number squared.
	todo_num := cardinality(todo);
	look_num := todo_num;
	WHILE todo_num > 0 LOOP
		-- is_own     it is this order's
		-- refusal    why the operation cannot have the receive; NULL: it can
		-- changes    it would change it
		-- is_new     the operation was not executed before
		-- alters     it has all its receives, and changes some
		WITH asked AS (
			SELECT e.*, use.action[e.op] AS action, use.order_id[e.op] AS order_id,
				use.key[e.op] AS key, nullif(use.by_key[e.op], '') AS by_key,
				use.ttl_s[e.op] AS ttl_s, use.amount[e.op] AS amount,
				nullif(use.currency[e.op], '') AS currency
			FROM unnest(use.op, use.coupon, use.user_id, use.batch, use.idx)
					WITH ORDINALITY AS e (op, coupon, user_id, batch, idx, ord)
				JOIN unnest(todo[:look_num]) AS t (op) ON t.op = e.op
		), found AS (
			SELECT a.op, a.ord, a.action, a.order_id, a.key, a.by_key, a.ttl_s,
				a.amount, a.coupon, a.user_id, coalesce(a.batch, f.batch) AS batch,
				coalesce(a.idx, f.idx) AS idx, f.slot, f.valid_from, f.valid_to,
				coalesce(a.currency, c.currency) AS currency,
				a.currency <> c.currency AS is_foreign,
				discount(c.amount_off, c.percent_off, c.threshold, c.cap, a.amount)
					AS amount_off,
				a.amount IS NULL AND CASE WHEN a.action = 'use'
					THEN coalesce(c.threshold, c.percent_off) IS NOT NULL
					ELSE c.budget IS NOT NULL AND c.percent_off IS NOT NULL
					END AS lacks_amount,
				c.budget, s.state, s.amount_off AS old_off,
				s.budget AS old_budget, s.order_id = a.order_id AS is_own,
				-- The order has used it with another amount.
				(a.action = 'use' AND a.amount IS NOT NULL AND s.state = 'used'
					AND a.amount IS DISTINCT FROM (
						SELECT o.amount FROM use_operation AS o
						WHERE o.coupon_id = f.coupon AND o.batch = f.batch
							AND o.idx = f.idx AND o.action = 'use'
							AND o.to_state = 'used'
						ORDER BY o.num DESC LIMIT 1)) IS TRUE AS differs,
				a.action = 'rollback' AND a.amount IS NOT NULL AS is_part,
				d.order_id AS done_by, d.user_id AS done_for,
				(SELECT true FROM use_operation AS o
					WHERE o.key = a.key AND o.action = a.action
						AND o.action <> 'expire'
						AND o.by_key IS NOT DISTINCT FROM a.by_key
					LIMIT 1) IS TRUE AS is_known,
				-- With EXISTS the whole table would be hashed.
				(SELECT true FROM coupon_void AS v
					WHERE v.coupon_id = f.coupon AND v.batch = f.batch
						AND v.idx = f.idx LIMIT 1) IS TRUE AS is_voided
			FROM asked AS a
				LEFT JOIN unnest(r.coupon, r.user_id, r.batch, r.idx, r.slot,
						r.valid_from, r.valid_to)
					AS f (coupon, user_id, batch, idx, slot, valid_from,
						valid_to)
					ON f.coupon = a.coupon AND f.user_id = a.user_id
						AND (a.batch IS NULL
							OR (f.batch = a.batch AND f.idx = a.idx))
				LEFT JOIN unnest(k.id, k.currency, k.amount_off, k.percent_off,
						k.threshold, k.cap, k.budget)
					AS c (id, currency, amount_off, percent_off, threshold, cap,
						budget)
					ON c.id = a.coupon
				LEFT JOIN LATERAL (
					SELECT s.state, s.order_id, s.amount_off, s.budget
					FROM receive_use AS s
					WHERE s.coupon_id = f.coupon AND s.batch = f.batch
						AND s.idx = f.idx
					LIMIT 1
				) AS s ON true
				LEFT JOIN LATERAL (
					SELECT d.order_id, d.user_id FROM use_operation AS d
					WHERE d.coupon_id = a.coupon
						AND d.batch = coalesce(a.batch, f.batch)
						AND d.idx = coalesce(a.idx, f.idx)
						AND d.action = a.action AND d.key = a.key
					LIMIT 1
				) AS d ON true
		), weighed AS (
			SELECT f.*, CASE
				WHEN state IS NULL THEN 'not_found'
				WHEN action = 'use' AND state = 'used' AND is_own THEN CASE
					WHEN NOT differs THEN NULL
					WHEN is_foreign THEN 'currency_wrong'
					WHEN amount_off = 0 THEN 'below_threshold' END
				WHEN action IN ('hold', 'use') AND is_voided THEN 'voided'
				WHEN state = 'used' AND NOT (is_own AND action = 'rollback')
					THEN 'already_used'
				WHEN state = 'held' AND is_own AND action = 'rollback'
					THEN 'not_used'
				WHEN state = 'held' AND NOT is_own
					THEN 'held_by_other'
				WHEN is_part THEN CASE
					WHEN state <> 'used' THEN 'not_used'
					WHEN is_foreign THEN 'currency_wrong'
					WHEN amount > coalesce(old_off, 0) THEN 'amount_exceeded'
					END
				WHEN action IN ('release', 'rollback') THEN NULL
				WHEN valid_to <= moment THEN 'expired'
				WHEN valid_from > moment THEN 'not_valid_yet'
				WHEN is_foreign THEN 'currency_wrong'
				WHEN lacks_amount THEN 'amount_needed'
				WHEN amount_off = 0 THEN 'below_threshold'
				END AS refusal,
				CASE WHEN action = 'hold' THEN true
					WHEN action = 'use' THEN state <> 'used' OR differs
					ELSE state <> 'free' AND NOT (is_part AND amount = 0)
					END AS changes
			FROM found AS f
		), chosen AS (
			SELECT DISTINCT ON (ord) * FROM weighed
			ORDER BY ord, done_by IS NULL, refusal = 'voided' IS TRUE,
				is_own IS NOT TRUE, refusal IS NOT NULL, slot
		), judged AS (
			SELECT c.*, count(done_by) OVER whole > 0 AS is_done,
				bool_or(is_known OR done_by IS NOT NULL) OVER whole IS FALSE
					AS is_new,
				bool_and(refusal IS NULL) OVER whole AS is_granted,
				bool_and(refusal IS NULL) OVER whole AND bool_or(changes) OVER whole
					AND bool_or(is_known OR done_by IS NOT NULL) OVER whole
						IS FALSE AS alters
			FROM chosen AS c
			WINDOW whole AS (PARTITION BY op)
		), placed AS (
			SELECT p.*,
				min(op) FILTER (WHERE alters) OVER (PARTITION BY coupon, user_id)
					AS first_alters,
				least(min(op) OVER (PARTITION BY action, key, by_key),
					min(op) OVER (PARTITION BY coupon, user_id, action, key),
					min(op) OVER (PARTITION BY coupon, batch, idx,
						CASE WHEN batch IS NULL THEN user_id END, action,
						key)) AS first_same
			FROM judged AS p
		), held_up AS (
			SELECT p.*, bool_or(least(first_alters, first_same) < op) OVER whole
					AS waits,
				count(*) OVER whole > 1 AS is_many
			FROM placed AS p
			WINDOW whole AS (PARTITION BY op)
		), ready AS (
			-- One with several receives may alter those that others ask for, too.
			SELECT h.*, waits OR op > min(op) FILTER (WHERE waits AND is_many) OVER ()
				IS TRUE AS is_late
			FROM held_up AS h
		)
		SELECT array_agg(op) AS op, array_agg(coupon) AS coupon,
			array_agg(user_id) AS user_id, array_agg(batch) AS batch,
			array_agg(idx) AS idx, array_agg(state) AS state,
			array_agg(refusal) AS refusal,
			array_agg(is_new) AS is_new, array_agg(is_granted) AS is_granted,
			coalesce(array_agg(op) FILTER (WHERE is_done), '{}') AS done_ops,
			coalesce(array_agg(op) FILTER (WHERE NOT is_new AND NOT is_done), '{}')
				AS reused_ops,
			array_agg(alters AND changes) AS changes,
			array_agg(CASE WHEN action = 'hold'
				THEN least(moment + ttl_s * interval '1 s', valid_to) END)
				AS until,
			array_agg(currency) AS currency,
			array_agg(CASE WHEN is_part THEN greatest(old_off - amount, 0)
				WHEN action IN ('release', 'rollback') THEN NULL
				WHEN changes THEN amount_off ELSE old_off END) AS amount_off,
			array_agg(CASE WHEN is_part THEN old_budget
				WHEN action IN ('hold', 'use') THEN budget END) AS budget,
			array_agg(old_off) AS old_off, array_agg(old_budget) AS old_budget
		INTO j
		FROM (SELECT * FROM ready WHERE NOT is_late ORDER BY ord) AS r;

		-- Which of them their budgets have room for.
		spent_ops := '{}';
		IF budgets IS NOT NULL THEN
			IF room IS NULL THEN
				SELECT array_agg(b.amount - b.held - b.spent ORDER BY b.name)
				INTO room FROM budget AS b WHERE b.name = ANY (budgets);
			END IF;
			FOR i IN 1 .. cardinality(j.op) LOOP
				IF i = 1 OR j.op[i] <> j.op[i - 1] THEN
					left_now := room;
				END IF;
				IF j.changes[i] AND j.old_budget[i] IS NOT NULL THEN
					place := array_position(budgets, j.old_budget[i]);
					left_now[place] := left_now[place] + j.old_off[i];
				END IF;
				IF j.changes[i] AND j.budget[i] IS NOT NULL THEN
					place := array_position(budgets, j.budget[i]);
					left_now[place] := left_now[place] - j.amount_off[i];
				END IF;
				IF i < cardinality(j.op) AND j.op[i] = j.op[i + 1] THEN
					CONTINUE;
				END IF;
				IF 0 <= ALL (left_now) THEN
					room := left_now;
				ELSE
					spent_ops := spent_ops || j.op[i];
				END IF;
			END LOOP;
			IF spent_ops <> '{}' AND NOT is_freed THEN
				is_freed := true;
				PERFORM use_free(budgets, 10000);
				room := NULL;
				CONTINUE;
			END IF;
		END IF;

		WITH w AS (
			SELECT w.*, use.action[w.op] AS action, use.order_id[w.op] AS order_id,
				use.key[w.op] AS key, use.by_key[w.op] AS by_key,
				use.amount[w.op] AS amount, use.reason[w.op] AS reason,
				w.op = ANY (spent_ops) AS is_spent,
				CASE WHEN use.action[w.op] = 'hold' THEN 'held'
					WHEN use.action[w.op] = 'use' THEN 'used'
					WHEN use.action[w.op] = 'rollback'
						AND use.amount[w.op] IS NOT NULL THEN 'used'
					ELSE 'free' END AS wanted
			FROM unnest(j.op, j.coupon, j.user_id, j.batch, j.idx, j.state,
					j.refusal, j.is_new, j.is_granted, j.changes, j.until,
					j.currency, j.amount_off, j.budget, j.old_off, j.old_budget)
					AS w (op, coupon, user_id, batch, idx, state,
						refusal, is_new, is_granted, changes, until,
						currency, amount_off, budget, old_off, old_budget)
			WHERE w.is_new AND w.batch IS NOT NULL
		), changed AS (
			INSERT INTO receive_use AS s (coupon_id, batch, idx, user_id, state,
				order_id, until, amount_off, budget)
			SELECT coupon, batch, idx, user_id, wanted,
				CASE WHEN wanted <> 'free' THEN order_id END, until, amount_off,
				budget
			FROM w WHERE changes AND NOT is_spent
			ON CONFLICT (coupon_id, batch, idx) DO UPDATE
			SET state = excluded.state, order_id = excluded.order_id,
				until = excluded.until, amount_off = excluded.amount_off,
				budget = excluded.budget
		), counted AS (
			UPDATE budget AS b
			SET held = b.held + n.held, spent = b.spent + n.spent, updated_at = moment
			FROM (
				SELECT n.name,
					sum(CASE n.state WHEN 'held' THEN n.amount ELSE 0 END)
						AS held,
					sum(CASE n.state WHEN 'used' THEN n.amount ELSE 0 END)
						AS spent
				FROM (
					SELECT budget, wanted, amount_off FROM w
					WHERE changes AND NOT is_spent
					UNION ALL
					SELECT old_budget, state, -old_off FROM w
					WHERE changes AND NOT is_spent
				) AS n (name, state, amount)
				GROUP BY n.name
			) AS n
			WHERE b.name = n.name AND b.name = ANY (budgets)
		), added AS (
			INSERT INTO use_operation AS d (coupon_id, batch, idx, action, key, at,
				user_id, by_key, order_id, result, from_state, to_state, until,
				amount, currency, amount_off, budget, reason, nth)
			SELECT coupon, batch, idx, action, key, moment, user_id,
				nullif(by_key, ''), order_id,
				CASE WHEN is_spent AND budget IS NOT NULL THEN 'budget_spent'
					WHEN refusal IS NOT NULL THEN refusal
					WHEN is_spent OR NOT is_granted THEN 'kept'
					WHEN action = 'rollback' THEN 'rolled_back'
					WHEN action = 'release' THEN 'released'
					ELSE wanted END,
				state, CASE WHEN changes AND NOT is_spent THEN wanted END, until,
				amount, currency, amount_off, budget, nullif(reason, ''),
				row_number() OVER (PARTITION BY op ORDER BY coupon, batch, idx) - 1
			FROM w
			ON CONFLICT DO NOTHING
			RETURNING CASE WHEN d.to_state IS NOT NULL
				AND d.coupon_id = ANY (k.event_ids) THEN d END AS operation
		)
		SELECT count(*) - (SELECT count(*) FROM w),
			array_agg(operation) FILTER (WHERE (operation).num IS NOT NULL)
		INTO added_num, told
		FROM added;
		IF added_num < 0 THEN
			RAISE EXCEPTION 'a copy of an operation, or its key, was executed meanwhile'
				USING ERRCODE = 'serialization_failure';
		END IF;
		IF told IS NOT NULL THEN
			PERFORM event_used_add(told, use.action, use.key, use.trace, j.op, j.coupon,
				j.batch, j.idx);
		END IF;
		replayed := replayed || j.done_ops;
		reused := reused || j.reused_ops;
		todo := ARRAY(SELECT t.op FROM unnest(todo) AS t (op)
			EXCEPT SELECT d.op FROM unnest(j.op) AS d (op) ORDER BY 1);
		done_num := todo_num - cardinality(todo);
		look_num := CASE WHEN done_num < look_num THEN 16 * done_num ELSE 4 * look_num END;
		todo_num := cardinality(todo);
	END LOOP;

	-- One that was kept alone was named by the key together with another, which was refused.
	-- All rows of an operation have its time.
	RETURN QUERY
	SELECT q.of_op, q.result, q.coupon, q.user_id, q.batch, q.idx, q.until_ms, q.amount_off,
		q.currency, n.state, n.is_own, n.until_ms, q.record
	FROM (
		SELECT e.op AS of_op, o.order_id, e.ord, e.coupon, e.user_id,
			CASE WHEN e.op = ANY (reused) THEN 'key_taken'
				WHEN d.result IS NULL AND e.batch IS NULL THEN 'not_found'
				WHEN d.order_id = o.order_id AND d.user_id = e.user_id
					AND d.amount IS NOT DISTINCT FROM o.amount
					AND (o.currency = '' OR d.currency = o.currency)
					AND bool_and(d.result IS NOT NULL) OVER whole
					AND (d.result <> 'kept' OR bool_or(d.result NOT IN
						('held', 'used', 'released', 'rolled_back', 'kept'))
						OVER whole)
					AND (e.op <> ALL (replayed) OR count(*) OVER whole = (
						SELECT count(*) FROM use_operation AS x
						WHERE x.key = o.key AND x.action = o.action
							AND x.action <> 'expire' AND x.at = d.at
							AND x.order_id = d.order_id))
					THEN d.result
				ELSE 'key_taken' END AS result,
			coalesce(e.batch, d.batch) AS batch, coalesce(e.idx, d.idx) AS idx,
			floor(extract(epoch FROM d.until) * 1000)::bigint AS until_ms,
			d.amount_off, d.currency,
			CASE WHEN d.to_state IS NOT NULL THEN json_build_array(1, d.num,
				extract(epoch FROM d.at), d.coupon_id::text, d.user_id, d.batch,
				d.idx, d.action, d.key, d.by_key, d.order_id, d.result,
				d.from_state, d.to_state, extract(epoch FROM d.until), d.amount,
				d.currency, d.amount_off, d.budget, d.reason)::text END AS record
		FROM unnest(use.op, use.coupon, use.user_id, use.batch, use.idx)
				WITH ORDINALITY AS e (op, coupon, user_id, batch, idx, ord)
			JOIN unnest(use.action, use.order_id, use.key, use.amount, use.currency)
				WITH ORDINALITY
				AS o (action, order_id, key, amount, currency, op) ON o.op = e.op
			LEFT JOIN LATERAL (
				SELECT d.*
				FROM (
					SELECT e.batch, e.idx WHERE e.batch IS NOT NULL
					UNION ALL
					SELECT f.batch, f.idx
					FROM unnest(r.coupon, r.user_id, r.batch, r.idx)
						AS f (coupon, user_id, batch, idx)
					WHERE e.batch IS NULL AND f.coupon = e.coupon
						AND f.user_id = e.user_id
				) AS f CROSS JOIN LATERAL (
					SELECT d.* FROM use_operation AS d
					WHERE d.coupon_id = e.coupon AND d.batch = f.batch
						AND d.idx = f.idx AND d.action = o.action
						AND d.key = o.key
					LIMIT 1
				) AS d
				LIMIT 1
			) AS d ON true
		WINDOW whole AS (PARTITION BY e.op)
	) AS q LEFT JOIN LATERAL (
		-- What the receive is now, while it is locked. A hold of one that is voided has no
		-- use any more.
		SELECT CASE WHEN f.coupon IS NULL THEN 'not_found' WHEN h.has THEN s.state
				WHEN v.is_voided THEN 'voided' ELSE 'free' END AS state,
			h.has AND s.order_id = q.order_id AS is_own,
			CASE WHEN h.has
				THEN floor(extract(epoch FROM s.until) * 1000)::bigint END
				AS until_ms
		FROM (VALUES (0)) AS always (one)
			LEFT JOIN unnest(r.coupon, r.user_id, r.batch, r.idx)
				AS f (coupon, user_id, batch, idx)
				ON f.coupon = q.coupon AND f.user_id = q.user_id
					AND f.batch = q.batch AND f.idx = q.idx
			CROSS JOIN LATERAL (
				SELECT (SELECT true FROM coupon_void AS v
					WHERE v.coupon_id = f.coupon AND v.batch = f.batch
						AND v.idx = f.idx LIMIT 1) IS TRUE AS is_voided
			) AS v LEFT JOIN LATERAL (
				SELECT s.state, s.until, s.order_id FROM receive_use AS s
				WHERE s.coupon_id = f.coupon AND s.batch = f.batch AND s.idx = f.idx
				LIMIT 1
			) AS s ON true CROSS JOIN LATERAL (
				SELECT (s.state = 'used' OR (s.state = 'held' AND NOT v.is_voided))
					IS TRUE AS has
			) AS h
	) AS n ON q.of_op = ANY (replayed) AND q.result <> 'key_taken'
	ORDER BY q.ord;
END
$$;
