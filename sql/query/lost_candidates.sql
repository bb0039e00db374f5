-- The positions of those receives of one coupon that have no outcome.
-- $1 coupon, $2 users, $3 slots, $4 batches, $5 indexes: arrays of one length
SELECT r.ord
FROM unnest($2::text[], $3::smallint[], $4::uuid[], $5::smallint[])
		WITH ORDINALITY AS r (user_id, slot, batch, idx, ord)
WHERE (SELECT true FROM user_coupon AS u
		WHERE u.user_id = r.user_id AND u.coupon_id = $1::bigint AND u.slot = r.slot
			AND u.batch = r.batch AND u.idx = r.idx
		LIMIT 1) IS NULL
	AND (SELECT true FROM receive_rejected AS t
		WHERE t.coupon_id = $1::bigint AND t.batch = r.batch AND t.idx = r.idx
		LIMIT 1) IS NULL
ORDER BY r.ord
