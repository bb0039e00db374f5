-- How far requests for a rebuild were answered, and the last answer.
-- $1 coupon
SELECT rebuild_done, coalesce(rebuild_told, '') AS rebuild_told FROM coupon WHERE id = $1::bigint
