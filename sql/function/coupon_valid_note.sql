-- version: 1
-- function: coupon_valid_note()
--
-- Notes which transaction changed the validity of a coupon, for event_add(). The trigger (in
-- sql/schema/coupon.sql) fires only for statements that set one of its columns; settle() sets none.
CREATE OR REPLACE FUNCTION coupon_valid_note() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	NEW.valid_xid := pg_current_xact_id();
	RETURN NEW;
END
$$;
