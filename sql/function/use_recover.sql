-- version: 1
-- function: use_recover(text[])
--
-- For couponctl recover: brings back operations on receives, of which Redis has these records
-- (lua/uses.lua), in any order, and gives each of their receives the state that its last operation
-- has left. Their events are written again. Returns how many were missing. Budgets are counted by
-- use_recover_end().
CREATE OR REPLACE FUNCTION use_recover(records text[])
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	missing use_operation[];
BEGIN
	WITH r AS (
		SELECT r::jsonb AS r FROM unnest(records) AS r
	), added AS (
		INSERT INTO use_operation AS d (num, at, coupon_id, user_id, batch, idx, action,
			key, by_key, order_id, result, from_state, to_state, until, amount,
			currency, amount_off, budget, reason, nth)
		OVERRIDING SYSTEM VALUE
		SELECT (r->>1)::bigint, to_timestamp((r->>2)::numeric), (r->>3)::bigint, r->>4,
			(r->>5)::uuid, (r->>6)::smallint, r->>7, r->>8, r->>9, r->>10, r->>11,
			r->>12, r->>13, to_timestamp((r->>14)::numeric), (r->>15)::bigint, r->>16,
			(r->>17)::bigint, r->>18, r->>19,
			-- An operation may be there in part.
			(SELECT coalesce(max(x.nth), -1) FROM use_operation AS x
				WHERE x.key = r->>8 AND x.action = r->>7 AND x.action <> 'expire'
					AND x.by_key IS NOT DISTINCT FROM r->>9)
				+ row_number() OVER (PARTITION BY r->>8, r->>7, r->>9
					ORDER BY (r->>1)::bigint)
		FROM r
		ON CONFLICT DO NOTHING
		RETURNING d AS operation
	)
	SELECT array_agg(operation) INTO missing FROM added;

	PERFORM setval('use_operation_num_seq', greatest(max((r::jsonb->>1)::bigint),
		(SELECT last_value FROM use_operation_num_seq)))
	FROM unnest(records) AS r;

	INSERT INTO receive_use AS s (coupon_id, batch, idx, user_id, state, order_id, until,
		amount_off, budget)
	SELECT o.coupon_id, o.batch, o.idx, o.user_id, o.to_state,
		CASE WHEN o.to_state <> 'free' THEN o.order_id END,
		CASE WHEN o.to_state = 'held' THEN o.until END,
		CASE WHEN o.to_state <> 'free' THEN o.amount_off END,
		CASE WHEN o.to_state <> 'free' THEN o.budget END
	FROM (
		SELECT DISTINCT (r::jsonb->>3)::bigint AS coupon_id, (r::jsonb->>5)::uuid AS batch,
			(r::jsonb->>6)::smallint AS idx
		FROM unnest(records) AS r
	) AS named CROSS JOIN LATERAL (
		SELECT o.* FROM use_operation AS o
		WHERE o.coupon_id = named.coupon_id AND o.batch = named.batch AND o.idx = named.idx
			AND o.to_state IS NOT NULL
		ORDER BY o.num DESC LIMIT 1
	) AS o
	ORDER BY o.coupon_id, o.batch, o.idx
	ON CONFLICT (coupon_id, batch, idx) DO UPDATE
	SET state = excluded.state, order_id = excluded.order_id, until = excluded.until,
		amount_off = excluded.amount_off, budget = excluded.budget;
	PERFORM event_used_add(missing);
	RETURN coalesce(cardinality(missing), 0);
END
$$;
