-- version: 1
-- function: event_used_add(anyarray,text[],text[],text[],int[],bigint[],uuid[],smallint[])
--
-- Writes the events of operations that have changed receives, of coupons with events: a row of
-- event_log for each type. Who inserts the operations holds the locks of their receives. If a
-- receive has several, the later one is in a later row. `done` are rows of use_operation, which is
-- created after the functions; of the traces, and of the arrays by which they are found, see use().
CREATE OR REPLACE FUNCTION event_used_add(
	done   anyarray,
	action text[] DEFAULT '{}',
	key    text[] DEFAULT '{}',
	trace  text[] DEFAULT '{}',
	op     int[] DEFAULT '{}',
	coupon bigint[] DEFAULT '{}',
	batch  uuid[] DEFAULT '{}',
	idx    smallint[] DEFAULT '{}')
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	INSERT INTO event_log (type, num, coupon, batch, idx, user_id, trace, history_id, detail)
	SELECT 'coupon.' || d.result, count(*), array_agg(d.coupon_id), array_agg(d.batch),
		array_agg(d.idx), array_agg(d.user_id),
		CASE WHEN count(d.trace) > 0 THEN array_agg(coalesce(d.trace, '')) END,
		array_agg(d.num),
		array_agg(jsonb_strip_nulls(jsonb_build_object('order', d.order_id,
			'until', CASE WHEN d.to_state = 'held' THEN to_char(
				d.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END,
			'amount', d.amount,
			'amount_off', CASE WHEN d.to_state <> 'free' THEN d.amount_off END,
			'currency', CASE WHEN d.to_state <> 'free' THEN d.currency END,
			'reason', CASE d.action WHEN 'expire' THEN 'hold_ended'
				ELSE d.reason END)))
	FROM (
		SELECT d.*, t.trace, row_number() OVER (PARTITION BY d.coupon_id, d.batch, d.idx
			ORDER BY d.num) AS turn
		FROM unnest(done) AS d
			LEFT JOIN (
				SELECT e.coupon, e.batch, e.idx, o.action, o.key, o.trace
				FROM unnest(event_used_add.op, event_used_add.coupon,
						event_used_add.batch, event_used_add.idx)
						AS e (op, coupon, batch, idx)
					JOIN unnest(event_used_add.action, event_used_add.key,
							event_used_add.trace) WITH ORDINALITY
						AS o (action, key, trace, op) ON o.op = e.op
				WHERE o.trace <> ''
			) AS t ON t.coupon = d.coupon_id AND t.batch = d.batch AND t.idx = d.idx
				AND t.action = d.action AND t.key = d.key
		-- A look-up for each, not a join: see settle().
		WHERE (SELECT c.events_on FROM coupon AS c WHERE c.id = d.coupon_id LIMIT 1)
	) AS d
	GROUP BY d.turn, d.result
	ORDER BY d.turn;
END
$$;
