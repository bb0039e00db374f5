-- version: 1
-- function: use_begin(text[],text[],text[],text[],int[],bigint[],text[],text[],int[],bigint[],text[],uuid[],smallint[],text[])
--
-- For use(), whose arguments it gets: locks the receives and the budgets, and executes the plain
-- operations. Returns the others.
--
-- Plain is a hold or a use of one receive that is free or held by the same order, and that no other
-- operation of the call names, if nothing speaks against it, and its key is new. Most are. One that
-- no order has named before gets its row at once as it is to be, and it is not locked first; what
-- the locks would have shown, the primary keys and the CHECK of the budget show. One that has a row
-- must be as it was read when it is locked. If not, all is undone, and done again with no operation
-- plain.
--
-- Locks are taken in one order: receives that have a row, by id; those that get one, by id; budgets
-- by name. Who waits for a row to be inserted has locked all that are there before.
CREATE OR REPLACE FUNCTION use_begin(
	action   text[],
	order_id text[],
	key      text[],
	by_key   text[],
	ttl_s    int[],
	amount   bigint[],
	currency text[],
	reason   text[],
	op       int[],
	coupon   bigint[],
	user_id  text[],
	batch    uuid[],
	idx      smallint[],
	trace    text[])
RETURNS int[]
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	may_be_plain boolean := true;
	moment  timestamptz;
	r       record;   -- the receives, in the order of their ids; `wanted` is NULL unless plain
	is_same boolean;  -- plain ones that have a row are as they were read; NULL: there are none
	budgets text[];
	told    use_operation[]; -- NULL: there is no event
BEGIN
	LOOP
		moment := clock_timestamp();
		WITH c AS MATERIALIZED (
			SELECT c.*, (SELECT b.amount - b.held - b.spent FROM budget AS b
				WHERE b.name = c.budget LIMIT 1) AS room
			FROM coupon AS c WHERE c.id = ANY (use_begin.coupon)
		), e AS (
			-- With its key, and so with its receive.
			SELECT e.*, count(*) OVER (PARTITION BY use_begin.action[op],
				use_begin.key[op], use_begin.by_key[op]) = 1 AS is_alone
			FROM (
				SELECT unnest(use_begin.op) AS op,
					unnest(use_begin.coupon) AS coupon,
					unnest(use_begin.user_id) AS user_id,
					unnest(use_begin.batch) AS batch,
					unnest(use_begin.idx) AS idx
			) AS e
		), f AS (
			-- A receive that was voided has two rows here, unless it has none in
			-- user_coupon any more: then it is not valid from any time.
			SELECT e.op, e.coupon, f.batch, f.idx, e.user_id, f.valid_to, c.budget,
				c.events_on, c.room, c.currency,
				nullif(use_begin.currency[e.op], '') AS asked_currency,
				discount(c.amount_off, c.percent_off, c.threshold, c.cap,
					use_begin.amount[e.op]) AS amount_off,
				use_begin.amount[e.op] IS NULL AND use_begin.action[e.op] = 'use'
					AND coalesce(c.threshold, c.percent_off) IS NOT NULL
					AS lacks_amount,
				CASE use_begin.action[e.op] WHEN 'hold' THEN 'held'
					WHEN 'use' THEN 'used' END AS wanted,
				e.is_alone AND e.batch IS NOT NULL AND f.valid_from <= moment
					AND (f.valid_to <= moment) IS NOT TRUE AS is_valid,
				(SELECT true FROM use_operation AS d
					WHERE d.key = use_begin.key[e.op]
						AND d.action = use_begin.action[e.op]
						AND d.action <> 'expire'
						AND d.by_key IS NOT DISTINCT FROM
							nullif(use_begin.by_key[e.op], '')
					LIMIT 1) AS is_known,
				s.place, s.state, s.order_id = use_begin.order_id[e.op] AS is_own,
				s.until AS old_until, s.amount_off AS old_off,
				s.budget AS old_budget,
				count(*) OVER same AS named_num, row_number() OVER same AS nth
			FROM e LEFT JOIN c ON c.id = e.coupon CROSS JOIN LATERAL (
				SELECT u.batch, u.idx, u.valid_from, u.valid_to
				FROM user_coupon AS u
				WHERE u.user_id = e.user_id AND u.coupon_id = e.coupon
					AND (e.batch IS NULL
						OR (u.batch = e.batch AND u.idx = e.idx))
				UNION ALL
				SELECT v.batch, v.idx, NULL, NULL
				FROM coupon_void AS v
				WHERE v.coupon_id = e.coupon AND v.user_id = e.user_id
					AND (e.batch IS NULL
						OR (v.batch = e.batch AND v.idx = e.idx))
				LIMIT 1000
			) AS f LEFT JOIN LATERAL (
				SELECT s.ctid AS place, s.state, s.order_id, s.until, s.amount_off,
					s.budget
				FROM receive_use AS s
				WHERE s.coupon_id = e.coupon AND s.batch = f.batch
					AND s.idx = f.idx
				LIMIT 1
			) AS s ON true
			WINDOW same AS (PARTITION BY e.coupon, f.batch, f.idx)
		), p AS (
			SELECT f.*, may_be_plain AND is_valid AND named_num = 1
				AND is_known IS NULL
				AND (place IS NULL OR state = 'free' OR (state = 'held' AND is_own
					AND old_until > moment
					AND old_budget IS NOT DISTINCT FROM budget))
				AND wanted IS NOT NULL AND (asked_currency <> currency) IS NOT TRUE
				AND NOT lacks_amount AND amount_off IS DISTINCT FROM 0
				AND (budget IS NULL OR amount_off <= room + coalesce(old_off, 0))
					IS TRUE AS is_plain
			FROM f WHERE nth = 1
			ORDER BY coupon, batch, idx
		), w AS (
			SELECT op, coupon, batch, idx, user_id, place, is_plain, events_on,
				coalesce(state, 'free') AS state,
				least(valid_to, old_until) AS plain_to,
				CASE WHEN is_plain THEN wanted END AS wanted,
				CASE WHEN is_plain THEN use_begin.order_id[op] END AS order_id,
				CASE WHEN is_plain AND wanted = 'held' THEN least(valid_to,
					moment + use_begin.ttl_s[op] * interval '1 s') END AS until,
				coalesce(asked_currency, currency) AS currency,
				CASE WHEN is_plain THEN amount_off END AS amount_off,
				CASE WHEN is_plain THEN budget END AS budget,
				coalesce(old_off, 0) AS old_off, budget AS of_coupon
			FROM p
		), x AS (
			SELECT w.*, ROW(coupon, batch, idx, user_id, coalesce(wanted, 'free'),
				order_id, until, amount_off, budget)::receive_use AS new
			FROM w
		)
		-- No DISTINCT: then PostgreSQL might sort for it.
		SELECT array_agg(op) AS op, array_agg(coupon) AS coupon, array_agg(batch) AS batch,
			array_agg(idx) AS idx, array_agg(user_id) AS user_id,
			array_agg(place) AS place, array_agg(state) AS state,
			array_agg(wanted) AS wanted, array_agg(until) AS until,
			array_agg(currency) AS currency, array_agg(amount_off) AS amount_off,
			array_agg(budget) AS budget, array_agg(old_off) AS old_off,
			array_agg(new) FILTER (WHERE place IS NULL) AS added,
			array_agg(new) FILTER (WHERE place IS NOT NULL AND is_plain) AS changed,
			array_agg(of_coupon) FILTER (WHERE of_coupon IS NOT NULL) AS budgets,
			bool_or(place IS NOT NULL) AS has_rows,
			coalesce(bool_or(is_plain), false) AS has_plain,
			bool_or(events_on AND is_plain) AS has_events,
			min(plain_to) FILTER (WHERE is_plain) AS plain_to
		INTO r FROM x;
		budgets := r.budgets;
		is_same := NULL;

		BEGIN
			IF r.has_rows THEN
				SELECT budgets || array_agg(s.budget),
					bool_and(s.ctid = f.place)
						FILTER (WHERE f.wanted IS NOT NULL)
				INTO budgets, is_same
				FROM unnest(r.coupon, r.batch, r.idx, r.place, r.wanted)
						AS f (coupon, batch, idx, place, wanted)
					CROSS JOIN LATERAL (
						SELECT s.ctid, s.budget FROM receive_use AS s
						WHERE s.coupon_id = f.coupon AND s.batch = f.batch
							AND s.idx = f.idx
						LIMIT 1 FOR NO KEY UPDATE
					) AS s
				WHERE f.place IS NOT NULL;
				IF NOT is_same THEN
					RAISE unique_violation;
				END IF;
			END IF;
			INSERT INTO receive_use SELECT * FROM unnest(r.added);
			PERFORM FROM budget AS b WHERE b.name = ANY (budgets)
			ORDER BY b.name FOR NO KEY UPDATE;
			IF NOT r.has_plain THEN
				RETURN ARRAY(SELECT generate_subscripts(use_begin.action, 1));
			END IF;

			moment := clock_timestamp();
			IF r.plain_to <= moment THEN
				RAISE unique_violation;
			END IF;
			IF is_same THEN
				INSERT INTO receive_use SELECT * FROM unnest(r.changed)
				ON CONFLICT (coupon_id, batch, idx) DO UPDATE
				SET state = excluded.state, order_id = excluded.order_id,
					until = excluded.until, amount_off = excluded.amount_off,
					budget = excluded.budget;
			END IF;
			UPDATE budget AS b
			SET held = b.held + n.held, spent = b.spent + n.spent, updated_at = moment
			FROM (
				SELECT n.name,
					sum(CASE n.wanted WHEN 'held' THEN n.amount ELSE 0 END
						- n.old) AS held,
					sum(CASE n.wanted WHEN 'used' THEN n.amount ELSE 0 END)
						AS spent
				FROM unnest(r.budget, r.wanted, r.amount_off, r.old_off)
					AS n (name, wanted, amount, old)
				GROUP BY n.name
			) AS n
			WHERE b.name = n.name AND b.name = ANY (budgets);
			WITH f AS (
				SELECT unnest(r.op) AS op, unnest(r.coupon) AS coupon,
					unnest(r.batch) AS batch, unnest(r.idx) AS idx,
					unnest(r.user_id) AS user_id, unnest(r.state) AS state,
					unnest(r.wanted) AS wanted, unnest(r.until) AS until,
					unnest(r.currency) AS currency,
					unnest(r.amount_off) AS amount_off,
					unnest(r.budget) AS budget
			), added AS (
				INSERT INTO use_operation AS d (coupon_id, batch, idx, action, key,
					at, user_id, by_key, order_id, result, from_state, to_state,
					until, amount, currency, amount_off, budget, reason)
				SELECT f.coupon, f.batch, f.idx, use_begin.action[f.op],
					use_begin.key[f.op], moment, f.user_id,
					nullif(use_begin.by_key[f.op], ''),
					use_begin.order_id[f.op], f.wanted, f.state, f.wanted,
					f.until, use_begin.amount[f.op], f.currency, f.amount_off,
					f.budget, nullif(use_begin.reason[f.op], '')
				FROM f WHERE f.wanted IS NOT NULL
				-- So that two calls do not wait for each other's keys.
				ORDER BY 5, 4, 8
				RETURNING CASE WHEN r.has_events THEN d END AS operation
			)
			SELECT array_agg(operation) FILTER (WHERE (operation).num IS NOT NULL)
			INTO told FROM added;
			IF told IS NOT NULL THEN
				PERFORM event_used_add(told, use_begin.action, use_begin.key,
					use_begin.trace, r.op, r.coupon, r.batch, r.idx);
			END IF;
			RETURN ARRAY(SELECT generate_subscripts(use_begin.action, 1)
				EXCEPT SELECT f.op FROM unnest(r.op, r.wanted) AS f (op, wanted)
				WHERE f.wanted IS NOT NULL ORDER BY 1);
		EXCEPTION
			WHEN unique_violation THEN
				may_be_plain := false;
			WHEN check_violation THEN -- of the budget, if it is not for bad arguments
				IF NOT may_be_plain THEN
					RAISE;
				END IF;
				may_be_plain := false;
		END;
	END LOOP;
END
$$;
