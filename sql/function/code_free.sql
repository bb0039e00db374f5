-- version: 1
-- function: code_free(bigint[],uuid[],smallint[],text[])
--
-- Frees the codes of receives that have no user coupon (any more), element by element; NULL, words
-- and codes that the receive does not have are left. Anyone may claim a freed code, unless it
-- was revoked after this receive was accepted.
CREATE OR REPLACE FUNCTION code_free(
	coupon bigint[],
	batch  uuid[],
	idx    smallint[],
	code   text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	UPDATE code AS c
	SET state = CASE WHEN c.revocation_num IS NULL THEN 'unused' ELSE 'revoked' END,
		user_id = NULL, batch = NULL, idx = NULL, used_at = NULL
	FROM unnest(code_free.coupon, code_free.batch, code_free.idx, code_free.code)
		AS r (coupon, batch, idx, code)
	WHERE strpos(r.code, '.') > 0
		AND c.set_id = split_part(r.code, '.', 1)::bigint
		AND c.serial = split_part(r.code, '.', 2)::bigint
		AND c.state = 'used' AND c.coupon_id = r.coupon AND c.batch = r.batch
		AND c.idx = r.idx;
END
$$;
