-- version: 1
-- function: code_revocation_next(bigint)
--
-- The number of a new revocation of codes of this coupon. Until the end of the transaction no other
-- gets a number, so revocations are committed in the order of their numbers. Taken before codes and
-- coupons are locked.
CREATE OR REPLACE FUNCTION code_revocation_next(coupon bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM pg_advisory_xact_lock('code_revocation'::regclass::int,
		hashint8(code_revocation_next.coupon));
	-- A separate statement: it sees what the one before has waited for.
	RETURN (SELECT c.revocation_num + 1 FROM coupon AS c
		WHERE c.id = code_revocation_next.coupon);
END
$$;
