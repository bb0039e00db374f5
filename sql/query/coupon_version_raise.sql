-- Lifts the version of a coupon's terms to that of Redis, which is ahead after a couponctl stock that did not reach its end.
-- $1 coupon, $2 version
UPDATE coupon SET version = $2::int, updated_at = now() WHERE id = $1::bigint AND version < $2::int
