-- version: 1
-- function: coupon_unsettle()
--
-- Removes the mark "settled" from a coupon that gets a further outcome: a message was in flight
-- that neither Redis nor PostgreSQL had recorded. The keeper then checks the coupon again. The
-- trigger (in sql/schema/coupon.sql) costs one comparison in statements that count outcomes, and
-- nothing in others.
CREATE OR REPLACE FUNCTION coupon_unsettle() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	UPDATE coupon SET settled_at = NULL WHERE id = NEW.id;
	RETURN NULL;
END
$$;
