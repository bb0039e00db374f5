-- The number of workers in a long transaction: their un-acked messages are not settled yet. A role
-- sees only its own sessions; workers use the same role.
SELECT count(*) AS slow_num
FROM pg_stat_activity
WHERE application_name = 'coupon-worker' AND state <> 'idle'
	AND xact_start < clock_timestamp() - interval '1 second'
