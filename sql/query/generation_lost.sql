-- Records as lost the numbers of an older generation that have no outcome, and returns how many
-- there were. The caller must hold the lock on the coupon.
-- $1 coupon, $2 generation, $3 its highest number in Redis, $4 how many of its receives without an
-- outcome can still arrive
WITH old AS (
	SELECT coupon_id, generation, greatest(seq_seen, $3::bigint) AS seq, settled_num
	FROM coupon_generation WHERE coupon_id = $1::bigint AND generation = $2::int
), given_up AS (
	UPDATE coupon_generation AS g SET seq_seen = old.seq, settled_num = old.seq - $4::bigint
	FROM old
	WHERE g.coupon_id = old.coupon_id AND g.generation = old.generation
		AND old.settled_num < old.seq - $4::bigint
	RETURNING old.seq - $4::bigint - old.settled_num AS lost_num
)
SELECT lost_num FROM given_up
