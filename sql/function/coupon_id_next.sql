-- version: 1
-- function: coupon_id_next()
--
-- Returns the next unused coupon id. Ids may also be chosen by the operator.
CREATE OR REPLACE FUNCTION coupon_id_next() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
DECLARE
	candidate bigint;
BEGIN
	LOOP
		candidate := nextval('coupon_id_seq');
		EXIT WHEN NOT EXISTS (SELECT FROM coupon WHERE id = candidate);
	END LOOP;
	RETURN candidate;
END
$$;
