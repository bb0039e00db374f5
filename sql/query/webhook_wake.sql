-- Has the workers look for deliveries now.
SELECT pg_notify('couponmq_webhook', '')
