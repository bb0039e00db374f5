-- Takes the lock of couponctl queue move for the session; false: another session has it.
SELECT pg_try_advisory_lock(hashtext('couponmq'), hashtext('queue move')) AS locked
