-- Records the result of a requested rebuild. No row: another keeper was elected.
-- $1 coupon, $2 number of the request (rebuild_asked as it was read), $3 result,
-- $4 the keeper's fence
UPDATE coupon
SET rebuild_done = greatest(rebuild_done, $2::int), rebuild_told = $3::text
FROM (SELECT fence FROM keeper WHERE fence = $4::bigint FOR SHARE) AS elected
WHERE id = $1::bigint
RETURNING id
