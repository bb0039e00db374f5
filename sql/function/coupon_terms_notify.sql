-- version: 1
-- function: coupon_terms_notify()
--
-- Notifies the keeper of new terms, so that it applies them at once. The trigger (in
-- sql/schema/coupon.sql) fires only for statements that set a column of the terms; settle() sets
-- none.
CREATE OR REPLACE FUNCTION coupon_terms_notify() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM pg_notify('couponmq_terms', NEW.id::text);
	RETURN NULL;
END
$$;
