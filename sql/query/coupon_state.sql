-- The state of coupons that Redis does not have. Times in ms since the epoch, 0 = no bound; now_ms
-- is the server's clock. Generation 0: the coupon was never loaded into Redis. settled: it is
-- closed, and no receive is in flight.
-- $1 coupons
SELECT id, status,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM end_at) * 1000)::bigint, 0) AS end_ms,
	floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
	generation, settled_at IS NOT NULL AS settled
FROM coupon
WHERE id = ANY ($1::bigint[])
