-- version: 1
-- function: coupon_generation_open(bigint,int,int,bigint)
--
-- Opens a new generation of a coupon and stores the counts of the old one. Returns NULL and changes
-- nothing unless `fence` is the current one and the coupon's generation is `expected`. The new
-- number is higher than `redis_generation` and than every generation that was seen in a message,
-- including after a restore of an older backup.
--
-- Only the latest 100 older generations keep a row each, because every reader looks at all of them.
-- Those before are folded.
CREATE OR REPLACE FUNCTION coupon_generation_open(
	coupon           bigint,
	expected         int,
	redis_generation int,
	fence            bigint)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	kept_max CONSTANT int := 100;
	old    coupon%ROWTYPE;
	opened int;
	folded int;
BEGIN
	-- The shared row lock orders this call and an election: the later of the two waits, and
	-- after an election the fence differs.
	PERFORM FROM keeper AS k WHERE k.fence = coupon_generation_open.fence FOR SHARE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	-- A separate statement: the counts must be read after the wait for the lock.
	SELECT c.* INTO old FROM coupon AS c
		WHERE c.id = coupon_generation_open.coupon FOR NO KEY UPDATE;
	IF NOT FOUND OR old.generation <> coupon_generation_open.expected THEN
		RETURN NULL;
	END IF;

	SELECT 1 + greatest(
		old.generation, coupon_generation_open.redis_generation, max(g.generation))
	INTO opened
	FROM coupon_generation AS g WHERE g.coupon_id = old.id;

	IF old.generation > 0 OR old.settled_num > 0 THEN
		INSERT INTO coupon_generation (coupon_id, generation, seq_seen, settled_num)
		VALUES (old.id, old.generation, old.seq_seen, old.settled_num);
	END IF;

	SELECT g.generation INTO folded
	FROM coupon_generation AS g WHERE g.coupon_id = old.id AND g.generation > 0
	ORDER BY g.generation DESC OFFSET kept_max LIMIT 1;
	IF FOUND THEN
		PERFORM coupon_generation_fold(old.id, folded);
	END IF;

	UPDATE coupon AS c
	SET generation = opened, seq_seen = 0, settled_num = 0, settled_at = NULL
	WHERE c.id = old.id;
	RETURN opened;
END
$$;
