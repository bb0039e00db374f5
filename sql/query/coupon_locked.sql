-- Those of the coupons whose rows other sessions have locked, so that settle() would wait. It waits
-- for no row lock; its own end with the statement. A worker's settlement ends soon, and is not
-- reported.
-- $1 coupons
WITH free AS MATERIALIZED (
	SELECT id FROM coupon WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT c.id
FROM coupon AS c
WHERE c.id = ANY ($1::bigint[])
	AND NOT EXISTS (SELECT FROM free WHERE free.id = c.id)
	AND NOT EXISTS (SELECT FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
		WHERE l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted
			AND a.application_name LIKE 'coupon-worker%')
