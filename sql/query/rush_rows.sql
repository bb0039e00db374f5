-- A page of the user coupons of a range of users, in the order of user, batch and index.
-- $1 coupon, $2 first user, $3 last user, $4 $5 $6 after this user, batch and index,
-- $7 limit
SELECT user_id, batch, idx
FROM user_coupon
WHERE coupon_id = $1::bigint AND user_id BETWEEN $2::bigint AND $3::bigint
	AND user_id >= $4::bigint
	AND (user_id, batch, idx) > ($4::bigint, $5::uuid, $6::smallint)
ORDER BY user_id, batch, idx
LIMIT $7::int
