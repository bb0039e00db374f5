-- What a coupon gives to users: its discount, and metadata; and the version of its terms.
-- $1 coupon
SELECT version, currency, amount_off, percent_off, cap, threshold, metadata::text AS metadata
FROM coupon
WHERE id = $1::bigint
