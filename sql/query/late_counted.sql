-- Redis has counted a coupon's late outcomes up to this number. Nothing is removed when this keeper was replaced.
-- $1 coupon, $2 number, $3 the keeper's fence
DELETE FROM coupon_late
USING (SELECT fence FROM keeper WHERE fence = $3::bigint FOR SHARE) AS elected
WHERE coupon_id = $1::bigint AND num <= $2::bigint
