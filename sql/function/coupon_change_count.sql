-- version: 1
-- function: coupon_change_count()
--
-- Counts a change by an operator or the keeper, for the triggers in sql/schema. Those of settle()
-- are counted by its caller.
CREATE OR REPLACE FUNCTION coupon_change_count() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM change_note(false);
	RETURN NULL;
END
$$;
