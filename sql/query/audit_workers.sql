-- The number of workers whose un-acked messages are still to be settled: they are in a long
-- transaction, or have put off coupons. They try one of these again each second; a session that is
-- idle for longer has settled them. A role sees only its own sessions; workers use the same role.
SELECT count(*) AS hold_num
FROM pg_stat_activity
WHERE (application_name LIKE 'coupon-worker%' AND state <> 'idle'
		AND xact_start < clock_timestamp() - interval '1 second')
	OR (application_name = 'coupon-worker put off'
		AND (state <> 'idle' OR state_change > clock_timestamp() - interval '5 seconds'))
