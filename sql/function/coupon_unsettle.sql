-- version: 1
-- function: coupon_unsettle()
--
-- A coupon that was marked as settled gets another outcome: of a message that was in flight without
-- a trace. It is not settled any more, and the keeper has to look at it again. Its trigger (in
-- migration 0006) costs one comparison, and only statements that count outcomes.
CREATE OR REPLACE FUNCTION coupon_unsettle() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	UPDATE coupon SET settled_at = NULL WHERE id = NEW.id;
	RETURN NULL;
END
$$;
