-- version: 1
-- function: receive_lost(bigint,int[],uuid[],smallint[],bigint[],smallint[],bigint[])
--
-- receive_lost() as the version before calls it, with user ids that are numbers.
CREATE OR REPLACE FUNCTION receive_lost(
	coupon     bigint,
	generation int[],
	batch      uuid[],
	idx        smallint[],
	user_id    bigint[],
	slot       smallint[],
	at_ms      bigint[])
RETURNS SETOF int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT * FROM receive_lost(receive_lost.coupon, receive_lost.generation,
		receive_lost.batch, receive_lost.idx, receive_lost.user_id::text[],
		receive_lost.slot, receive_lost.at_ms);
END
$$;
