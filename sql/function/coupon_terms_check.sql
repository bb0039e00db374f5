-- version: 1
-- function: coupon_terms_check()
--
-- Refuses the terms of a coupon. The conditions are those of the trigger (in migration 0012), which
-- settle() does not fire, because it sets no column of the terms.
CREATE OR REPLACE FUNCTION coupon_terms_check() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'coupon % has terms that are not possible', NEW.id
		USING ERRCODE = 'check_violation', TABLE = 'coupon', CONSTRAINT = 'coupon_terms';
END
$$;
