-- version: 1
-- function: code_set_revoke(bigint)
--
-- Revokes a set: all of its codes that are not used. Does nothing if it is revoked already.
CREATE OR REPLACE FUNCTION code_set_revoke(code_set bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	of_coupon bigint := (SELECT s.coupon_id FROM code_set AS s
		WHERE s.id = code_set_revoke.code_set);
	new_num   bigint := code_revocation_next(of_coupon);
BEGIN
	UPDATE code_set AS s
	SET revoked_at = now(), revocation_num = new_num,
		revoked_by = coalesce(nullif(current_setting('couponmq.by', true), ''),
			session_user)
	WHERE s.id = code_set_revoke.code_set AND s.revoked_at IS NULL;
	IF FOUND THEN
		PERFORM code_revocation_add(of_coupon, new_num);
	END IF;
END
$$;
