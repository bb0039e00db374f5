-- Redis was started anew and may have forgotten what was given back: give it back again, which changes nothing where it is known.
-- $1 coupon, $2 the keeper's fence
UPDATE receive_rejected
SET released_at = NULL
FROM (SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE) AS elected
WHERE coupon_id = $1::bigint AND released_at IS NOT NULL
