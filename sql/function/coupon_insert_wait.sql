-- version: 1
-- function: coupon_insert_wait()
--
-- A receive of an unknown coupon is rejected for ever. Its coupon must not be created between the
-- moment when settle() finds it unknown and the moment when the tombstone becomes visible, or a
-- copy of the receive could be issued. settle() holds this lock shared meanwhile. The trigger is in
-- migration 0001.
CREATE OR REPLACE FUNCTION coupon_insert_wait() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM pg_advisory_xact_lock('coupon'::regclass::int, 0);
	RETURN NULL;
END
$$;
