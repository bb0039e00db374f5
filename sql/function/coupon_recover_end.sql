-- version: 1
-- function: coupon_recover_end(bigint,int,int[],bigint[],bigint,bigint)
--
-- For couponctl recover, when every receive that Redis holds has its outcome: makes the counts of a
-- coupon say so, and opens a new generation, under which the keeper rebuilds the coupon in Redis.
-- Returns the new generation.
--
-- `generations` and `highs` are the highest numbers that Redis has, those of `redis_generation`
-- included. `own_owed` receives of that generation and `older_owed` of earlier ones have no outcome
-- yet. Redis does not know of which earlier ones, so these are folded: a late receive of any of
-- them ends one of those in flight.
CREATE OR REPLACE FUNCTION coupon_recover_end(
	coupon           bigint,
	redis_generation int,
	generations      int[],
	highs            bigint[],
	own_owed         bigint,
	older_owed       bigint)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	present    int;
	folded     int;
	elected    bigint;
	older_left bigint := coupon_recover_end.older_owed;
	owed       bigint;
	own        record;
	outcomes   bigint;
	settled    bigint;
BEGIN
	-- Held to the end: no keeper is elected meanwhile.
	SELECT k.fence INTO elected FROM keeper AS k FOR SHARE;
	SELECT c.generation, c.generation_folded INTO present, folded FROM coupon AS c
		WHERE c.id = coupon_recover_end.coupon FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;

	FOR own IN
		SELECT n.generation, max(n.high) AS high
		FROM (
			SELECT g.generation, greatest(g.seq_seen, g.settled_num) AS high
			FROM coupon_generation AS g WHERE g.coupon_id = coupon_recover_end.coupon
			UNION ALL
			SELECT c.generation, greatest(c.seq_seen, c.settled_num)
			FROM coupon AS c WHERE c.id = coupon_recover_end.coupon
			UNION ALL
			SELECT r.generation, r.high
			FROM unnest(coupon_recover_end.generations, coupon_recover_end.highs)
				AS r (generation, high)
			WHERE r.generation > folded
		) AS n
		GROUP BY n.generation ORDER BY n.generation DESC
	LOOP
		owed := 0;
		IF own.generation = coupon_recover_end.redis_generation THEN
			owed := least(own.high, coupon_recover_end.own_owed);
			older_left := older_left + coupon_recover_end.own_owed - owed;
		ELSIF own.generation < coupon_recover_end.redis_generation THEN
			owed := least(own.high, older_left);
			older_left := older_left - owed;
		END IF;
		IF own.generation = present THEN
			UPDATE coupon AS c
			SET seq_seen = own.high, settled_num = own.high - owed
			WHERE c.id = coupon_recover_end.coupon;
		ELSE
			INSERT INTO coupon_generation AS g
				(coupon_id, generation, seq_seen, settled_num)
			VALUES (coupon_recover_end.coupon, own.generation, own.high,
				own.high - owed)
			ON CONFLICT (coupon_id, generation) DO UPDATE
			SET seq_seen = excluded.seq_seen, settled_num = excluded.settled_num;
		END IF;
	END LOOP;

	IF coupon_recover_end.older_owed > 0 THEN
		PERFORM coupon_generation_fold(coupon_recover_end.coupon,
			coupon_recover_end.redis_generation - 1);
	END IF;

	-- Receives that were settled before it was noticed that PostgreSQL was put back: Redis has
	-- other receives under their numbers.
	SELECT c.issued_num + (SELECT count(*) FROM receive_rejected AS t
			WHERE t.coupon_id = c.id AND t.reason <> 'unknown_coupon'),
		c.settled_num + (SELECT coalesce(sum(g.settled_num), 0) FROM coupon_generation AS g
			WHERE g.coupon_id = c.id)
	INTO outcomes, settled
	FROM coupon AS c WHERE c.id = coupon_recover_end.coupon;
	IF outcomes > settled THEN
		UPDATE coupon AS c
		SET seq_seen = c.seq_seen + outcomes - settled,
			settled_num = c.settled_num + outcomes - settled
		WHERE c.id = coupon_recover_end.coupon;
	END IF;

	-- Redis counts nothing late any more: the rebuild reads the rows.
	DELETE FROM coupon_late AS l WHERE l.coupon_id = coupon_recover_end.coupon;
	RETURN coupon_generation_open(coupon_recover_end.coupon, present,
		coupon_recover_end.redis_generation, elected);
END
$$;
