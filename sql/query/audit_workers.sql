-- The number of workers whose un-acked messages are still to be settled: they are in a long
-- transaction, or have put off coupons. They try one of these again each second; a session that is
-- idle for longer has settled them. Workers log in as couponmq_worker, or as this session's role.
SELECT count(DISTINCT pid) AS hold_num
FROM (
	SELECT pid, name, state, xact_start, state_change FROM worker_sessions()
	UNION ALL
	SELECT pid, application_name, state, xact_start, state_change FROM pg_stat_activity
) AS session
WHERE (name LIKE 'coupon-worker%' AND state <> 'idle'
		AND xact_start < clock_timestamp() - interval '1 second')
	OR (name = 'coupon-worker put off'
		AND (state <> 'idle' OR state_change > clock_timestamp() - interval '5 seconds'))
