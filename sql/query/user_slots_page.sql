-- The taken slots of a coupon, for loading Redis, in the order of user and slot.
-- $1 coupon, $2 and $3 after this user and slot, $4 at most so many
SELECT user_id, slot, batch, idx, coalesce(key, '') AS key
FROM user_coupon
WHERE coupon_id = $1::bigint AND user_id >= $2::bigint AND (user_id, slot) > ($2::bigint, $3::smallint)
ORDER BY user_id, slot
LIMIT $4::int
