-- version: 1
-- function: coupon_generation_fold(bigint,int)
--
-- Folds the older generations of a coupon up to this one into the row with generation 0, which has
-- the sums of their counts, so that what is in flight is unchanged. A late receive of a folded
-- generation is counted in that row (settle(), receive_lost()). The numbers that Redis and gateways
-- have of it are not used any more. The caller holds the lock on the coupon.
CREATE OR REPLACE FUNCTION coupon_generation_fold(coupon bigint, folded int)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	WITH gone AS (
		DELETE FROM coupon_generation AS g
		WHERE g.coupon_id = coupon_generation_fold.coupon
			AND g.generation BETWEEN 1 AND coupon_generation_fold.folded
		RETURNING greatest(g.seq_seen, g.settled_num) AS seq_seen, g.settled_num,
			g.outcome_at
	)
	INSERT INTO coupon_generation AS g (coupon_id, generation, seq_seen, settled_num,
		outcome_at)
	SELECT coupon_generation_fold.coupon, 0, sum(gone.seq_seen), sum(gone.settled_num),
		max(gone.outcome_at)
	FROM gone HAVING count(*) > 0
	ON CONFLICT (coupon_id, generation) DO UPDATE
	SET seq_seen = greatest(g.seq_seen, g.settled_num) + excluded.seq_seen,
		settled_num = g.settled_num + excluded.settled_num,
		outcome_at = greatest(g.outcome_at, excluded.outcome_at);

	UPDATE coupon AS c
	SET generation_folded = greatest(c.generation_folded, coupon_generation_fold.folded)
	WHERE c.id = coupon_generation_fold.coupon;
END
$$;
