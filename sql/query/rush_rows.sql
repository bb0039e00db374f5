-- The user coupons of some users, of the coupons from one id to another, unordered; ord is the
-- user's position, from 1. OFFSET 0 keeps the inner SELECT a look-up by index for each user: a join
-- may read whole tables.
-- $1 the first coupon, $2 the last, $3 users
SELECT r.ord, o.coupon_id, o.batch, o.idx
FROM unnest($3::text[]) WITH ORDINALITY AS r (user_id, ord)
	CROSS JOIN LATERAL (SELECT t.coupon_id, t.batch, t.idx FROM user_coupon AS t
		WHERE t.user_id = r.user_id AND t.coupon_id BETWEEN $1::bigint AND $2::bigint
		OFFSET 0) AS o
