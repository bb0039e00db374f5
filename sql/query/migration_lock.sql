-- Allows only one `couponctl migrate` at a time. Held until the connection ends.
SELECT pg_advisory_lock(hashtext('couponmq'), hashtext('migrate'))
