-- The outcomes of some receives of a coupon, one row for each: its user coupon (issued_ms: when
-- Redis accepted it), its rejection (rejected_ms, is_released), whether Redis has not counted the
-- outcome yet (is_late), and the receive that has its slot (holder_batch). NULL: none.
-- $1 coupon, $2 users, $3 slots, $4 batches, $5 indexes: arrays of one length
SELECT r.ord, floor(extract(epoch FROM own.received_at) * 1000)::bigint AS issued_ms,
	floor(extract(epoch FROM t.received_at) * 1000)::bigint AS rejected_ms,
	t.released_at IS NOT NULL AS is_released,
	EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = $1::bigint
		AND l.user_id = r.user_id AND l.batch = r.batch AND l.idx = r.idx) AS is_late,
	holder.batch AS holder_batch, holder.idx AS holder_idx,
	coalesce(holder.key, '') || coalesce(E'\t' || holder.code, '') AS holder_key
FROM unnest($2::text[], $3::smallint[], $4::uuid[], $5::smallint[])
		WITH ORDINALITY AS r (user_id, slot, batch, idx, ord)
	LEFT JOIN LATERAL (SELECT u.batch, u.idx, u.key, u.code, u.received_at
		FROM user_coupon AS u
		WHERE u.user_id = r.user_id AND u.coupon_id = $1::bigint AND u.slot = r.slot
		LIMIT 1) AS holder ON true
	LEFT JOIN LATERAL (SELECT holder.received_at
		WHERE holder.batch = r.batch AND holder.idx = r.idx) AS own ON true
	LEFT JOIN LATERAL (SELECT t.received_at, t.released_at FROM receive_rejected AS t
		WHERE t.coupon_id = $1::bigint AND t.batch = r.batch AND t.idx = r.idx
			AND t.user_id = r.user_id
		LIMIT 1) AS t ON true
ORDER BY r.ord
