-- A page of the late outcomes that Redis has not counted, in their order. is_over: the coupon will
-- never be in Redis again.
-- $1 after this coupon, $2 and this number, $3 limit
SELECT l.coupon_id, l.num, l.generation, l.seq, l.user_id, l.slot, l.batch, l.idx, l.key,
	coalesce(l.reason, '') AS reason,
	coalesce((SELECT c.settled_at IS NOT NULL FROM coupon AS c WHERE c.id = l.coupon_id), true)
		AS is_over
FROM coupon_late AS l
WHERE (l.coupon_id, l.num) > ($1::bigint, $2::bigint)
ORDER BY l.coupon_id, l.num
LIMIT $3::int
