-- The transactions that hold a lock on a table that settling writes, except readers and VACUUM. A
-- role cannot see when transactions of other roles began; a virtual transaction that is returned
-- twice is still open.
SELECT DISTINCT l.virtualtransaction AS holder
FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.granted
	AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock')
	AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
	AND l.relation IN (SELECT 'coupon'::regclass
		UNION ALL SELECT 'coupon_generation'::regclass
		UNION ALL SELECT 'coupon_late'::regclass
		UNION ALL SELECT 'receive_rejected'::regclass
		UNION ALL SELECT relid FROM pg_partition_tree('user_coupon'))
ORDER BY holder
LIMIT 64
