-- version: 1
-- function: event_used_add(anyarray)
--
-- Writes the events of operations that have changed receives, of coupons with events: a row of
-- event_log for each type. Who inserts the operations holds the locks of their receives. If a
-- receive has several, the later one is in a later row. `done` are rows of use_operation, which is
-- created after the functions.
CREATE OR REPLACE FUNCTION event_used_add(done anyarray) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
BEGIN
	INSERT INTO event_log (type, num, coupon, batch, idx, user_id, history_id, detail)
	SELECT 'coupon.' || d.result, count(*), array_agg(d.coupon_id), array_agg(d.batch),
		array_agg(d.idx), array_agg(d.user_id), array_agg(d.num),
		array_agg(jsonb_strip_nulls(jsonb_build_object('order', d.order_id,
			'until', CASE WHEN d.to_state = 'held' THEN to_char(
				d.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END,
			'amount', d.amount,
			'amount_off', CASE WHEN d.to_state <> 'free' THEN d.amount_off END,
			'currency', CASE WHEN d.to_state <> 'free' THEN d.currency END,
			'reason', CASE d.action WHEN 'expire' THEN 'hold_ended'
				ELSE d.reason END)))
	FROM (
		SELECT d.*, row_number() OVER (PARTITION BY d.coupon_id, d.batch, d.idx
			ORDER BY d.num) AS turn
		FROM unnest(done) AS d
		-- A look-up for each, not a join: see settle().
		WHERE (SELECT c.events_on FROM coupon AS c WHERE c.id = d.coupon_id LIMIT 1)
	) AS d
	GROUP BY d.turn, d.result
	ORDER BY d.turn;
END
$$;
