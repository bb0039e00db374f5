-- version: 1
-- function: use_begin(text[],text[],text[],text[],int[],bigint[],text[],text[],int[],bigint[],text[],uuid[],smallint[],text[])
--
-- For use(), whose arguments it gets: locks the receives and the budgets, and executes the plain
-- operations. Returns the others.
--
-- Plain is a hold or a use of one receive that no order has named before, nor another operation of
-- the call, if nothing speaks against it. Most are. Of each the row is written at once as it is to
-- be, and not locked first; what all locks would have shown, the primary keys and the CHECK of the
-- budget show. If they show something, all is undone, and done again with no operation plain.
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
			SELECT e.*, count(*) OVER (PARTITION BY op) = 1 AS is_alone
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
				CASE use_begin.action[e.op] WHEN 'hold' THEN 'held'
					WHEN 'use' THEN 'used' END AS wanted,
				e.is_alone AND e.batch IS NOT NULL AND f.valid_from <= moment
					AND (f.valid_to <= moment) IS NOT TRUE AS is_valid,
				-- With EXISTS the whole table would be hashed.
				(SELECT true FROM receive_use AS s
					WHERE s.coupon_id = e.coupon AND s.batch = f.batch
						AND s.idx = f.idx LIMIT 1) IS TRUE AS is_there,
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
				WHERE v.coupon_id = e.coupon AND v.batch = e.batch
					AND v.idx = e.idx AND v.user_id = e.user_id
				LIMIT 100
			) AS f
			WINDOW same AS (PARTITION BY e.coupon, f.batch, f.idx)
		), p AS (
			SELECT f.*, may_be_plain AND is_valid AND named_num = 1 AND NOT is_there
				AND wanted IS NOT NULL AND (asked_currency <> currency) IS NOT TRUE
				AND (budget IS NULL OR amount_off <= room) IS TRUE AS is_plain
			FROM f WHERE nth = 1
			ORDER BY coupon, batch, idx
		)
		SELECT array_agg(op) AS op, array_agg(coupon) AS coupon, array_agg(batch) AS batch,
			array_agg(idx) AS idx, array_agg(user_id) AS user_id,
			array_agg(is_there) AS is_there,
			array_agg(CASE WHEN is_plain THEN wanted END) AS wanted,
			array_agg(CASE WHEN is_plain AND wanted = 'held' THEN
				least(moment + use_begin.ttl_s[op] * interval '1 s',
				valid_to) END)
				AS until,
			array_agg(coalesce(asked_currency, currency)) AS currency,
			array_agg(CASE WHEN is_plain THEN amount_off END) AS amount_off,
			array_agg(CASE WHEN is_plain THEN budget END) AS budget,
			array_agg(DISTINCT budget) FILTER (WHERE budget IS NOT NULL) AS budgets,
			array_agg(DISTINCT coupon) FILTER (WHERE events_on AND is_plain)
				AS event_ids,
			bool_or(is_there) AS has_rows,
			coalesce(bool_or(is_plain), false) AS has_plain,
			min(valid_to) FILTER (WHERE is_plain) AS valid_to
		INTO r FROM p;
		budgets := r.budgets;

		BEGIN
			IF r.has_rows THEN
				SELECT budgets || array_agg(s.budget) INTO budgets
				FROM unnest(r.coupon, r.batch, r.idx, r.is_there)
						AS f (coupon, batch, idx, is_there)
					CROSS JOIN LATERAL (
						SELECT s.budget FROM receive_use AS s
						WHERE s.coupon_id = f.coupon AND s.batch = f.batch
							AND s.idx = f.idx
						LIMIT 1 FOR NO KEY UPDATE
					) AS s
				WHERE f.is_there;
			END IF;
			INSERT INTO receive_use (coupon_id, batch, idx, user_id, state, order_id,
				until, amount_off, budget)
			SELECT f.coupon, f.batch, f.idx, f.user_id, coalesce(f.wanted, 'free'),
				CASE WHEN f.wanted IS NOT NULL THEN use_begin.order_id[f.op] END,
				f.until, f.amount_off, f.budget
			FROM (
				SELECT unnest(r.op) AS op, unnest(r.coupon) AS coupon,
					unnest(r.batch) AS batch, unnest(r.idx) AS idx,
					unnest(r.user_id) AS user_id,
					unnest(r.is_there) AS is_there, unnest(r.wanted) AS wanted,
					unnest(r.until) AS until,
					unnest(r.amount_off) AS amount_off,
					unnest(r.budget) AS budget
			) AS f
			WHERE NOT f.is_there;
			PERFORM FROM budget AS b WHERE b.name = ANY (budgets)
			ORDER BY b.name FOR NO KEY UPDATE;
			IF NOT r.has_plain THEN
				RETURN ARRAY(SELECT generate_subscripts(use_begin.action, 1));
			END IF;

			moment := clock_timestamp();
			IF r.valid_to <= moment THEN
				RAISE unique_violation;
			END IF;
			UPDATE budget AS b
			SET held = b.held + n.held, spent = b.spent + n.spent, updated_at = moment
			FROM (
				SELECT n.name,
					sum(CASE n.wanted WHEN 'held' THEN n.amount ELSE 0 END)
						AS held,
					sum(CASE n.wanted WHEN 'used' THEN n.amount ELSE 0 END)
						AS spent
				FROM unnest(r.budget, r.wanted, r.amount_off)
					AS n (name, wanted, amount)
				GROUP BY n.name
			) AS n
			WHERE b.name = n.name AND b.name = ANY (budgets);
			WITH f AS (
				SELECT unnest(r.op) AS op, unnest(r.coupon) AS coupon,
					unnest(r.batch) AS batch, unnest(r.idx) AS idx,
					unnest(r.user_id) AS user_id, unnest(r.wanted) AS wanted,
					unnest(r.until) AS until, unnest(r.currency) AS currency,
					unnest(r.amount_off) AS amount_off,
					unnest(r.budget) AS budget
			), added AS (
				INSERT INTO use_operation AS d (coupon_id, batch, idx, action, key,
					at, user_id, by_key, order_id, result, from_state, to_state,
					until, amount, currency, amount_off, budget, reason)
				SELECT f.coupon, f.batch, f.idx, use_begin.action[f.op],
					use_begin.key[f.op], moment, f.user_id,
					nullif(use_begin.by_key[f.op], ''),
					use_begin.order_id[f.op], f.wanted, 'free', f.wanted,
					f.until, use_begin.amount[f.op], f.currency, f.amount_off,
					f.budget, nullif(use_begin.reason[f.op], '')
				FROM f WHERE f.wanted IS NOT NULL
				RETURNING CASE WHEN d.coupon_id = ANY (r.event_ids) THEN d END
					AS operation
			)
			SELECT array_agg(operation) FILTER (WHERE (operation).num IS NOT NULL)
			INTO told FROM added;
			IF told IS NOT NULL THEN
				PERFORM event_used_add(told, use_begin.action, use_begin.key,
					use_begin.trace, r.op, r.coupon, r.batch, r.idx);
			END IF;
			RETURN ARRAY(SELECT generate_subscripts(use_begin.action, 1)
				EXCEPT SELECT f.op FROM unnest(r.op, r.wanted) AS f (op, wanted)
				WHERE f.wanted IS NOT NULL);
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
