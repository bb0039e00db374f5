-- version: 2
-- function: settle(bigint[],int[],bigint[],uuid[],smallint[],bigint[],smallint[],text[],bigint[])
--
-- settle() as versions call it whose user ids are numbers.
CREATE OR REPLACE FUNCTION settle(
	coupon     bigint[],
	generation int[],
	seq        bigint[],
	batch      uuid[],
	idx        smallint[],
	user_id    bigint[],
	slot       smallint[],
	key        text[],
	at_ms      bigint[])
RETURNS TABLE (ord int, outcome text, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT s.ord, s.outcome, s.reason
	FROM settle(settle.coupon, settle.generation, settle.seq, settle.batch, settle.idx,
		settle.user_id::text[], settle.slot, settle.key, settle.at_ms) AS s;
END
$$;
