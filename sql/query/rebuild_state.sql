-- The number of the last rebuild request that is done, and its result.
-- $1 coupon
SELECT rebuild_done, coalesce(rebuild_told, '') AS rebuild_told FROM coupon WHERE id = $1::bigint
