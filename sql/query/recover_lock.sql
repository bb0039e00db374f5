-- Takes the lock of couponctl recover for the session; false: another session has it.
SELECT pg_try_advisory_lock(hashtext('couponmq'), hashtext('recover')) AS locked
