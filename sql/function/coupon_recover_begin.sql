-- version: 1
-- function: coupon_recover_begin(bigint,int)
--
-- For couponctl recover: brings a coupon to at least the generation that Redis has, so that its
-- receives are not settled as those of another one, and returns its generation; NULL: there is no
-- such coupon. Counts are corrected by coupon_recover_end().
CREATE OR REPLACE FUNCTION coupon_recover_begin(
	coupon           bigint,
	redis_generation int)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	old coupon%ROWTYPE;
BEGIN
	SELECT c.* INTO old FROM coupon AS c
		WHERE c.id = coupon_recover_begin.coupon FOR NO KEY UPDATE;
	IF NOT FOUND OR old.generation >= coupon_recover_begin.redis_generation THEN
		RETURN old.generation;
	END IF;
	IF old.generation > 0 OR old.settled_num > 0 THEN
		INSERT INTO coupon_generation (coupon_id, generation, seq_seen, settled_num)
		VALUES (old.id, old.generation, old.seq_seen, old.settled_num)
		ON CONFLICT DO NOTHING;
	END IF;
	-- Removes the counts of receives that were settled before their coupon was at this
	-- generation.
	DELETE FROM coupon_generation AS g
	WHERE g.coupon_id = old.id AND g.generation = coupon_recover_begin.redis_generation;
	UPDATE coupon AS c
	SET generation = coupon_recover_begin.redis_generation, seq_seen = 0, settled_num = 0,
		settled_at = NULL
	WHERE c.id = old.id;
	RETURN coupon_recover_begin.redis_generation;
END
$$;
