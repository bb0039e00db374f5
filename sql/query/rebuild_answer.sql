-- Answers who asked for a rebuild. No row when this keeper was replaced.
-- $1 coupon, $2 what was asked (rebuild_asked as it was read), $3 the answer, $4 the keeper's fence
UPDATE coupon
SET rebuild_done = greatest(rebuild_done, $2::int), rebuild_told = $3::text
FROM (SELECT fence FROM keeper WHERE fence = $4::bigint FOR SHARE) AS elected
WHERE id = $1::bigint
RETURNING id
