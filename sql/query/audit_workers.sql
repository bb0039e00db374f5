-- How many workers are in a transaction that takes long: what they hold un-acked is still to be settled. Of others' sessions a
-- role sees nothing; workers have this one's.
SELECT count(*) AS slow_num
FROM pg_stat_activity
WHERE application_name = 'coupon-worker' AND state <> 'idle' AND xact_start < clock_timestamp() - interval '1 second'
