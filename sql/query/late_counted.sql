-- Deletes a coupon's late outcomes that Redis has counted, up to this number. Deletes nothing if
-- another keeper was elected.
-- $1 coupon, $2 number, $3 the keeper's fence
DELETE FROM coupon_late
USING (SELECT fence FROM keeper WHERE fence = $3::bigint FOR SHARE) AS elected
WHERE coupon_id = $1::bigint AND num <= $2::bigint
