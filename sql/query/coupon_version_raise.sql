-- Raises the version of a coupon's terms to that in Redis, which is higher after an interrupted
-- `couponctl stock`.
-- $1 coupon, $2 version
UPDATE coupon SET version = $2::int, updated_at = now() WHERE id = $1::bigint AND version < $2::int
