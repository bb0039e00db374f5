-- version: 8
-- function: settle(bigint[],int[],bigint[],uuid[],smallint[],text[],smallint[],text[],bigint[])
--
-- settle() as versions call it that pass no codes: of a redeemed code, `key` has the key, a tab and
-- the code.
CREATE OR REPLACE FUNCTION settle(
	coupon     bigint[],
	generation int[],
	seq        bigint[],
	batch      uuid[],
	idx        smallint[],
	user_id    text[],
	slot       smallint[],
	key        text[],
	at_ms      bigint[])
RETURNS TABLE (ord int, outcome text, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
DECLARE
	keys  text[] := settle.key;
	codes text[] := '{}';
BEGIN
	IF strpos(array_to_string(keys, ''), E'\t') > 0 THEN
		SELECT array_agg(split_part(r.key, E'\t', 1) ORDER BY r.ord),
			array_agg(split_part(r.key, E'\t', 2) ORDER BY r.ord)
		INTO keys, codes
		FROM unnest(settle.key) WITH ORDINALITY AS r (key, ord);
	END IF;
	RETURN QUERY SELECT s.ord, s.outcome, s.reason
	FROM settle(settle.coupon, settle.generation, settle.seq, settle.batch, settle.idx,
		settle.user_id, settle.slot, keys, codes, settle.at_ms) AS s;
END
$$;
