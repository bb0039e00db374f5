-- Locks in PostgreSQL; see docs/reference/locks.md.

-- lock_fence: The fence of the lock that was just taken.
SELECT lock_fence() AS fence

-- lock_release: Releases the lock of this name, and lets the session be idle; false: it did not
-- hold it.
SELECT CASE $2 WHEN 'read' THEN pg_advisory_unlock_shared(hashtext('couponmq'), hashtext($1))
	ELSE pg_advisory_unlock(hashtext('couponmq'), hashtext($1)) END AS released,
	set_config('idle_session_timeout', '0', false)

-- lock_session: For a session that is to hold a lock: the server ends it when nothing was asked of
-- it for the lease, and waits for the lock no longer than this (0: as long as it takes). Both in
-- ms, as text.
SELECT set_config('idle_session_timeout', $1, false), set_config('lock_timeout', $2, false)

-- lock_try: Takes the lock of this name, with others that read it if $2 is 'read'; false: it is not
-- free.
SELECT CASE $2 WHEN 'read' THEN pg_try_advisory_lock_shared(hashtext('couponmq'), hashtext($1))
	ELSE pg_try_advisory_lock(hashtext('couponmq'), hashtext($1)) END AS locked

-- lock_wait: Takes the lock of this name, with others that read it if $2 is 'read'; waits for it.
SELECT CASE $2 WHEN 'read' THEN pg_advisory_lock_shared(hashtext('couponmq'), hashtext($1))
	ELSE pg_advisory_lock(hashtext('couponmq'), hashtext($1)) END
