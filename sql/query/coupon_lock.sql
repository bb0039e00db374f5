-- Reads a coupon and locks it until the transaction ends: until then its receives are not settled.
-- Times in ms since the epoch, 0 = no bound.
-- $1 coupon
SELECT id, status, version, total_num, issued_num, user_limit,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM end_at) * 1000)::bigint, 0) AS end_ms,
	generation, seq_seen, settled_num
FROM coupon
WHERE id = $1::bigint
FOR NO KEY UPDATE
