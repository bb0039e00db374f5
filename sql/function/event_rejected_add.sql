-- version: 1
-- function: event_rejected_add()
--
-- Writes the events coupon.rejected of one statement, whoever rejects, in one row of event_log. The
-- trigger is in sql/schema/receive.sql. Who rejects holds the lock of the coupon. A void is an
-- event of its own (event_voided_add()).
CREATE OR REPLACE FUNCTION event_rejected_add() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	-- A look-up for each, not a join: see settle().
	INSERT INTO event_log (type, num, coupon, batch, idx, user_id, slot, at_ms, reason,
		trace)
	SELECT 'coupon.rejected', count(*), array_agg(a.coupon_id), array_agg(a.batch),
		array_agg(a.idx), array_agg(a.user_id), array_agg(a.slot),
		array_agg(floor(extract(epoch FROM a.received_at) * 1000)::bigint),
		array_agg(a.reason),
		CASE WHEN count(a.trace) > 0 THEN array_agg(coalesce(a.trace, '')) END
	FROM added AS a
	WHERE a.reason <> 'voided'
		AND (SELECT c.events_on FROM coupon AS c WHERE c.id = a.coupon_id LIMIT 1)
	HAVING count(*) > 0;
	RETURN NULL;
END
$$;
