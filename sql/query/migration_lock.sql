-- Only one couponctl migrate at a time; held until the connection ends.
SELECT pg_advisory_lock(hashtext('couponmq'), hashtext('migrate'))
