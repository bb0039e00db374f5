-- version: 1
-- function: code_revocation_add(bigint,bigint)
--
-- Records a revocation of codes of this coupon, after the codes. A generation that is opened later
-- is filled from a state that has it: what is accepted under it and redeems such a code is too
-- late. Which receives of the present generation are, Redis knows:
-- see sql_query_code_revocation_cut.
CREATE OR REPLACE FUNCTION code_revocation_add(coupon bigint, num bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
DECLARE
	present int;
BEGIN
	UPDATE coupon AS c
	SET revocation_num = code_revocation_add.num
	WHERE c.id = code_revocation_add.coupon
	RETURNING c.generation INTO present;
	IF FOUND THEN
		INSERT INTO code_revocation (coupon_id, num, generation)
		VALUES (code_revocation_add.coupon, code_revocation_add.num, present);
	END IF;
END
$$;
