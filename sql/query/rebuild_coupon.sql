-- Reads coupons for a rebuild. Times in ms since the epoch, 0 = no bound. The first columns are
-- those of coupon_page.
-- $1 coupons
SELECT id, status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM end_at) * 1000)::bigint, 0) AS end_ms,
	generation, seq_seen, settled_num, rebuild_asked, rebuild_done,
	EXISTS (SELECT FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.released_at IS NULL) AS is_pending,
	settled_at IS NOT NULL AS is_settled,
	EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = coupon.id) AS is_late,
	revocation_num,
	late_num,
	(SELECT count(*) FROM receive_rejected AS t
		WHERE t.coupon_id = coupon.id AND t.released_at IS NULL) AS unreleased_num,
	EXISTS (SELECT FROM receive_rejected AS t WHERE t.coupon_id = coupon.id) AS has_rejected
FROM coupon
WHERE id = ANY ($1::bigint[])
ORDER BY id
