/*
 * Every metric of coupon-admin but that with results once: METRIC(enumerator, "name", "type",
 * "help"). Names go out with the prefix couponmq_; `make docs` prints them into
 * docs/reference/metrics.md. No include guard: included for its expansion.
 */
METRIC(METRIC_RUNNING, "admin_commands_running", "gauge", "Running commands and jobs.")
METRIC(METRIC_WAITING, "admin_commands_waiting", "gauge",
       "Commands and jobs that wait for others to end.")
METRIC(METRIC_SESSIONS, "admin_sessions", "gauge", "Browser sessions that have not ended.")
METRIC(METRIC_LOOKERS, "admin_lookers", "gauge", "Clients of /admin/v1/live and /admin/v1/now.")
METRIC(METRIC_KEYS_REFUSED, "admin_keys_refused_total", "counter",
       "Refused API keys: unknown, wrong, expired or revoked.")
METRIC(METRIC_TLS_EXPIRES, "admin_tls_certificate_expires_seconds", "gauge",
       "Seconds until the certificate in use expires; negative after that; 0 without a "
       "certificate.")
METRIC(METRIC_TLS_TROUBLE, "admin_tls_trouble", "gauge",
       "1 while coupon-admin cannot load its TLS files, or its certificate has expired.")
