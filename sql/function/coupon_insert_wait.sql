-- version: 1
-- function: coupon_insert_wait()
--
-- Delays the creation of a coupon while settle() rejects receives of unknown coupons. Such a
-- rejection is permanent: if the coupon were created after settle() found it unknown and before the
-- tombstone is visible, a copy of the receive could be issued. During that time settle() holds this
-- lock shared. The trigger is in sql/schema/coupon.sql.
CREATE OR REPLACE FUNCTION coupon_insert_wait() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM pg_advisory_xact_lock('coupon'::regclass::int, 0);
	RETURN NULL;
END
$$;
