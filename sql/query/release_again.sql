-- Marks all rejected receives of these coupons as not released, because a restarted Redis may have
-- lost releases. Releasing a receive again changes nothing where the release is still present.
-- $1 coupons, $2 the keeper's fence
UPDATE receive_rejected
SET released_at = NULL
FROM (SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE) AS elected
WHERE coupon_id = ANY ($1::bigint[]) AND released_at IS NOT NULL
