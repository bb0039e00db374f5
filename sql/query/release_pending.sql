-- A page of the rejected receives that are not released, in the order of coupon, batch and index,
-- each with the receive that has its slot in PostgreSQL (holder_batch NULL: none). is_over: the
-- coupon will never be in Redis again.
-- $1 $2 $3 after this coupon, batch and index, $4 limit
SELECT t.coupon_id, t.batch, t.idx, t.user_id, t.slot, t.reason,
	holder.batch AS holder_batch, holder.idx AS holder_idx,
	coalesce(holder.key, '') || coalesce(E'\t' || holder.code, '') AS holder_key,
	coalesce((SELECT c.generation = 0 OR c.settled_at IS NOT NULL FROM coupon AS c
		WHERE c.id = t.coupon_id), true) AS is_over
FROM (
	SELECT coupon_id, batch, idx, user_id, slot, reason
	FROM receive_rejected
	WHERE released_at IS NULL
		AND (coupon_id, batch, idx) > ($1::bigint, $2::uuid, $3::smallint)
	ORDER BY coupon_id, batch, idx
	LIMIT $4::int
) AS t LEFT JOIN LATERAL (
	SELECT u.batch, u.idx, u.key, u.code FROM user_coupon AS u
	WHERE u.user_id = t.user_id AND u.coupon_id = t.coupon_id AND u.slot = t.slot
	LIMIT 1
) AS holder ON true
ORDER BY t.coupon_id, t.batch, t.idx
