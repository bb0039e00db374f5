-- The latest receive of a coupon that has an outcome, of those that were accepted after $2: when
-- its batch was made, by the gateway's clock, or when Redis accepted it, whichever is earlier. One
-- clock that is ahead thus changes nothing. NULL: none.
-- $1 coupon, $2 time in ms since the epoch
SELECT max(least(r.accepted_ms,
	('x' || left(replace(r.batch::text, '-', ''), 12))::bit(48)::bigint)) AS newest_ms
FROM (SELECT batch, floor(extract(epoch FROM received_at) * 1000)::bigint AS accepted_ms
	FROM user_coupon
	WHERE coupon_id = $1::bigint
		AND received_at > timestamptz 'epoch' + $2::bigint * interval '1 ms'
	UNION ALL
	SELECT batch, floor(extract(epoch FROM received_at) * 1000)::bigint
	FROM receive_rejected
	WHERE coupon_id = $1::bigint AND reason NOT IN ('lost', 'unknown_coupon')
		AND received_at > timestamptz 'epoch' + $2::bigint * interval '1 ms') AS r
