-- Releases the lock of this name, and lets the session be idle; false: it did not hold it.
SELECT CASE $2 WHEN 'read' THEN pg_advisory_unlock_shared(hashtext('couponmq'), hashtext($1))
	ELSE pg_advisory_unlock(hashtext('couponmq'), hashtext($1)) END AS released,
	set_config('idle_session_timeout', '0', false)
