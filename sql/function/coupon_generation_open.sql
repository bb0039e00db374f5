-- version: 2
-- function: coupon_generation_open(bigint,int,int,bigint)
--
-- Opens a new generation of a coupon and stores the counts of the old one. Returns NULL and changes
-- nothing unless `fence` is the current one and the coupon's generation is `expected`. The new
-- number is higher than `redis_generation` and than every generation that was seen in a message,
-- including after a restore of an older backup.
--
-- Only the latest 100 older generations keep a row each, because every reader looks at all of them.
-- Those before are folded into the row with generation 0, which has the sums of their counts, so
-- that what is in flight is unchanged. A late receive of a folded generation is counted in that row
-- (settle(), receive_lost()). The numbers that Redis and gateways have of it are not used any more.
CREATE OR REPLACE FUNCTION coupon_generation_open(
	coupon           bigint,
	expected         int,
	redis_generation int,
	fence            bigint)
RETURNS int
LANGUAGE plpgsql VOLATILE
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
		WITH gone AS (
			DELETE FROM coupon_generation AS g
			WHERE g.coupon_id = old.id AND g.generation BETWEEN 1 AND folded
			RETURNING greatest(g.seq_seen, g.settled_num) AS seq_seen, g.settled_num,
				g.outcome_at
		)
		INSERT INTO coupon_generation AS g (coupon_id, generation, seq_seen, settled_num,
			outcome_at)
		SELECT old.id, 0, sum(gone.seq_seen), sum(gone.settled_num), max(gone.outcome_at)
		FROM gone
		ON CONFLICT (coupon_id, generation) DO UPDATE
		SET seq_seen = greatest(g.seq_seen, g.settled_num) + excluded.seq_seen,
			settled_num = g.settled_num + excluded.settled_num,
			outcome_at = greatest(g.outcome_at, excluded.outcome_at);
	END IF;

	UPDATE coupon AS c
	SET generation = opened, seq_seen = 0, settled_num = 0, settled_at = NULL,
		generation_folded = greatest(c.generation_folded, folded)
	WHERE c.id = old.id;
	RETURN opened;
END
$$;

REVOKE ALL ON FUNCTION coupon_generation_open(bigint, int, int, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION coupon_generation_open(bigint, int, int, bigint) TO couponmq_app;
