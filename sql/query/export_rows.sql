-- All user coupons of a coupon for couponctl export, but for voided ones; unordered, times in ms
-- since the epoch. Read once, through a cursor.
-- $1 coupon
SELECT user_id, slot, batch, idx, key,
	(date_part('epoch', received_at) * 1000)::bigint AS received_ms,
	(date_part('epoch', valid_from) * 1000)::bigint AS valid_from_ms,
	(date_part('epoch', valid_to) * 1000)::bigint AS valid_to_ms
FROM user_coupon AS u
WHERE coupon_id = $1::bigint
	AND NOT EXISTS (SELECT FROM coupon_void AS v WHERE v.coupon_id = $1::bigint
		AND v.batch = u.batch AND v.idx = u.idx)
