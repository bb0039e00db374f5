-- version: 1
-- function: coupon_terms_notify()
--
-- Notifies the keeper, so that it acts on new terms at once. Its trigger (in migration 0001) costs
-- only statements that name the columns of the terms, which settle() does not.
CREATE OR REPLACE FUNCTION coupon_terms_notify() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM pg_notify('couponmq_terms', NEW.id::text);
	RETURN NULL;
END
$$;
