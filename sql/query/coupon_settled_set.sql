-- Marks a closed coupon as settled if PostgreSQL has an outcome for every receive that Redis has
-- accepted, and no rejected receive is to be released. Returns whether this keeper is still
-- elected, and whether the coupon is settled, marked now or before.
-- $1 coupon, $2 the keeper's fence, $3 generation and $4 last receive number in Redis,
-- $5 and $6 arrays: older generations, and the highest number of each in Redis
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE
), owed AS (
	-- The older generations whose settled receives are fewer than their highest number, in
	-- PostgreSQL or in Redis. They are more if a receive arrived whose number was given up.
	SELECT FROM coupon_generation AS g
		LEFT JOIN unnest($5::int[], $6::bigint[]) AS high (generation, seq)
			USING (generation)
	WHERE g.coupon_id = $1::bigint AND g.settled_num < greatest(g.seq_seen, high.seq)
	UNION ALL
	SELECT FROM unnest($5::int[], $6::bigint[]) AS high (generation, seq)
	WHERE high.seq > 0 AND NOT EXISTS (
		SELECT FROM coupon_generation AS g
		WHERE g.coupon_id = $1::bigint AND g.generation = high.generation)
), settled AS (
	UPDATE coupon
	SET settled_at = coalesce(settled_at, now()),
		expires_at = CASE WHEN settled_at IS NOT NULL THEN expires_at END
	FROM elected
	WHERE id = $1::bigint AND status = 'closed' AND generation = $3::int
		AND settled_num = $4::bigint AND seq_seen = $4::bigint
		AND NOT EXISTS (SELECT FROM owed)
		AND rebuild_asked = rebuild_done
		AND NOT EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = coupon.id)
		AND NOT EXISTS (SELECT FROM receive_rejected AS t
			WHERE t.coupon_id = coupon.id AND t.released_at IS NULL)
	RETURNING id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM settled) AS is_settled
