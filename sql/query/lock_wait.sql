-- Takes the lock of this name, with others that read it if $2 is 'read'; waits for it.
SELECT CASE $2 WHEN 'read' THEN pg_advisory_lock_shared(hashtext('couponmq'), hashtext($1))
	ELSE pg_advisory_lock(hashtext('couponmq'), hashtext($1)) END
