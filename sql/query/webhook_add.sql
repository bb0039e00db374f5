-- Adds a webhook. Returns its id. No row: there is no such coupon, or there are 1,000 webhooks.
-- $1 URL, $2 coupon (NULL: every one), $3 types, $4 events in a delivery at most, $5 deliveries in
-- the queue at most
INSERT INTO webhook (url, coupon_id, types, batch_max, queue_max, state_by, created_by)
SELECT $1::text, $2::bigint, $3::text[], $4::int, $5::int, made.by, made.by
FROM (SELECT coalesce(nullif(current_setting('couponmq.by', true), ''), session_user) AS by)
	AS made
WHERE ($2::bigint IS NULL OR EXISTS (SELECT FROM coupon AS c WHERE c.id = $2::bigint))
	AND (SELECT count(*) FROM webhook) < 1000
RETURNING id
