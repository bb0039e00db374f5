-- The rejected receives of some users, each of one coupon, unordered; ord is the user's position,
-- from 1. OFFSET 0 keeps the inner SELECT a look-up by index for each user: a join may read whole
-- tables.
-- $1 coupons, $2 users
SELECT r.ord, r.coupon_id, o.batch, o.idx
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS r (coupon_id, user_id, ord)
	CROSS JOIN LATERAL (SELECT t.batch, t.idx FROM receive_rejected AS t
		WHERE t.coupon_id = r.coupon_id AND t.user_id = r.user_id
		OFFSET 0) AS o
