-- version: 1
-- function: event_voided_add()
--
-- Writes the event coupon.voided of a receive that is taken back. The trigger is in
-- sql/schema/receive.sql. coupon_void() holds the lock of the coupon.
CREATE OR REPLACE FUNCTION event_voided_add() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	INSERT INTO event_log (type, num, coupon, batch, idx, user_id, slot, detail)
	SELECT 'coupon.voided', 1, ARRAY[NEW.coupon_id], ARRAY[NEW.batch], ARRAY[NEW.idx],
		ARRAY[NEW.user_id], ARRAY[NEW.slot],
		ARRAY[jsonb_build_object('returned', NEW.is_returned, 'why', NEW.why, 'by',
			NEW.voided_by)]
	FROM coupon AS c
	WHERE c.id = NEW.coupon_id AND c.events_on;
	RETURN NULL;
END
$$;
