-- Takes the lock of this name, with others that read it if $2 is 'read'; false: it is not free.
SELECT CASE $2 WHEN 'read' THEN pg_try_advisory_lock_shared(hashtext('couponmq'), hashtext($1))
	ELSE pg_try_advisory_lock(hashtext('couponmq'), hashtext($1)) END AS locked
