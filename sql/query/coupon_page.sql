-- A page of the coupons that the keeper watches, in the order of their ids. A closed coupon is
-- included until it is settled and its keys expire, because receives of it may be in flight. Times
-- in ms since the epoch, 0 = no bound.
-- $1 after this id, $2 limit, $3 only these ids (NULL: all)
SELECT id, status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM end_at) * 1000)::bigint, 0) AS end_ms,
	generation, seq_seen, settled_num, rebuild_asked, rebuild_done,
	EXISTS (SELECT FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.released_at IS NULL) AS is_pending,
	settled_at IS NOT NULL AS is_settled,
	EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = coupon.id) AS is_late,
	revocation_num
FROM coupon
WHERE (status IN ('published', 'paused')
		OR (status = 'closed' AND (settled_at IS NULL OR expires_at IS NULL)))
	AND id > $1::bigint
	AND ($3::bigint[] IS NULL OR id = ANY ($3::bigint[]))
ORDER BY id
LIMIT $2::int
