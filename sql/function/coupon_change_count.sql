-- version: 1
-- function: coupon_change_count()
--
-- Counts a change of a coupon. The trigger (in sql/schema/coupon.sql) fires only for statements
-- that set a column of the terms, the status or the generation; settle() sets none, and is counted
-- by its caller.
CREATE OR REPLACE FUNCTION coupon_change_count() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM change_note();
	RETURN NULL;
END
$$;
