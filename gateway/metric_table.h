/*
 * Every metric of the gateway once: METRIC(enumerator, "name", "type", "help"). The name goes out
 * with the prefix couponmq_; `make docs` prints them into docs/reference/metrics.md. No include
 * guard: included for its expansion.
 */
METRIC(METRIC_CONNECTIONS, "connections", "gauge", "Open connections of the socket API.")
METRIC(METRIC_CONNECTIONS_TOTAL, "connections_total", "counter",
       "Connections accepted by the socket API.")
METRIC(METRIC_CONNECTIONS_REFUSED, "connections_refused_total", "counter",
       "Connections refused at COUPON_CONNECTIONS_MAX.")
METRIC(METRIC_CONNECTIONS_REFUSED_ADDRESS, "connections_refused_address_total", "counter",
       "Connections refused at COUPON_CONNECTIONS_PER_ADDRESS_MAX.")
METRIC(METRIC_PROXY_FAILED, "proxy_headers_failed_total", "counter",
       "Connections from COUPON_PROXY_FROM whose PROXY protocol header was missing, malformed or "
       "not complete within 10 s.")
METRIC(METRIC_AUTH_KEY_WRONG, "auth_keys_refused_total", "counter",
       "Refused API keys: unknown, wrong, expired or revoked.")
METRIC(METRIC_AUTH_TOKEN_WRONG, "auth_tokens_refused_total", "counter", "Refused user tokens.")
METRIC(METRIC_AUTH_HELD_BACK, "auth_held_back_total", "counter",
       "User tokens refused without a check, because their address had sent wrong ones before.")
METRIC(METRIC_TLS_EXPIRES, "tls_certificate_expires_seconds", "gauge",
       "Seconds until the certificate in use expires; negative after that; 0 without a "
       "certificate.")
METRIC(METRIC_TLS_TROUBLE, "tls_trouble", "gauge",
       "Processes that could not load their TLS files, or whose certificate has expired.")
METRIC(METRIC_TLS_HANDSHAKING, "tls_handshakes", "gauge", "TLS handshakes in progress.")
METRIC(METRIC_TLS_HANDSHAKES, "tls_handshakes_total", "counter", "Completed TLS handshakes.")
METRIC(METRIC_TLS_HANDSHAKES_RESUMED, "tls_handshakes_resumed_total", "counter",
       "TLS handshakes that resumed a session.")
METRIC(METRIC_TLS_HANDSHAKES_FAILED, "tls_handshakes_failed_total", "counter",
       "TLS handshakes that failed, or took longer than 10 s.")
METRIC(METRIC_TLS_HANDSHAKES_REFUSED, "tls_handshakes_refused_total", "counter",
       "Connections closed because too many TLS handshakes were in progress, in total or from "
       "their address.")
METRIC(METRIC_CONNECTIONS_HELD, "connections_held_bytes", "gauge",
       "Bytes of input and unread replies of the socket API, and of unread HTTP replies.")
METRIC(METRIC_CONNECTIONS_CUT, "connections_cut_total", "counter",
       "Connections closed because they held too many unread replies or incomplete lines.")
METRIC(METRIC_CONNECTIONS_HTTP, "connections_http_total", "counter",
       "Connections closed because the client sent HTTP to the socket API.")
METRIC(METRIC_CONNECTIONS_IDLE, "connections_idle_total", "counter",
       "Connections closed after COUPON_IDLE_TIMEOUT_MS without traffic.")
METRIC(METRIC_HTTP_CONNECTIONS, "http_connections", "gauge", "Open HTTP connections.")
METRIC(METRIC_ACCEPT_PAUSES, "accept_pauses_total", "counter",
       "Times that accepting paused because few file descriptors were left.")
METRIC(METRIC_PROCESSES, "processes", "gauge", "Processes of this gateway.")
METRIC(METRIC_PROCESSES_READY, "processes_ready", "gauge",
       "Processes for which /readyz answers 200.")
METRIC(METRIC_REQUESTS, "requests_total", "counter",
       "Requests received over the socket API and HTTP.")
METRIC(METRIC_INFLIGHT, "requests_inflight", "gauge", "Requests received and not yet answered.")
METRIC(METRIC_CALLS, "script_calls_total", "counter", "Script calls sent to Redis.")
METRIC(METRIC_CALL_REQUESTS, "script_call_requests_total", "counter",
       "Requests in the script calls sent to Redis.")
METRIC(METRIC_CALLS_LOST, "script_calls_lost_total", "counter",
       "Script calls without a reply; their requests were answered unknown.")
METRIC(METRIC_CALLS_REFUSED, "script_calls_refused_total", "counter",
       "Script calls answered unverified or behind; their requests were answered unavailable.")
METRIC(METRIC_SCRIPT_RELOADS, "script_reloads_total", "counter",
       "Times that Redis did not have the script and the gateway loaded it again.")
METRIC(METRIC_REDIS_TIMEOUTS, "redis_timeouts_total", "counter",
       "Redis connections closed because a command timed out.")
METRIC(METRIC_REDIS_UP, "redis_up", "gauge", "Processes connected to Redis.")
METRIC(METRIC_REPLICAS, "redis_replicas", "gauge",
       "Replicas of Redis that count for COUPON_REDIS_REPLICAS, summed over the processes.")
METRIC(METRIC_REPLICAS_WANTED, "redis_replicas_wanted", "gauge",
       "COUPON_REDIS_REPLICAS, summed over the processes.")
METRIC(METRIC_AMQP_UP, "amqp_up", "gauge", "Processes connected to RabbitMQ.")
METRIC(METRIC_AMQP_BLOCKED, "amqp_blocked", "gauge",
       "Processes from which RabbitMQ accepts no messages because of a memory or disk alarm.")
METRIC(METRIC_DATABASE_UP, "database_up", "gauge", "Processes connected to PostgreSQL.")
METRIC(METRIC_QUEUES_DIFFERING, "queues_differing", "gauge",
       "Queues whose arguments differ from those that the programs declare, summed over all "
       "processes.")
METRIC(METRIC_WEAK_SETTINGS, "weak_settings", "gauge",
       "Redis and PostgreSQL settings that are too weak for the promises, and store URLs that lead "
       "to another machine without TLS, summed over all processes.")
METRIC(METRIC_PUBLISHED, "messages_published_total", "counter",
       "Messages published, including repeated publishes.")
METRIC(METRIC_CONFIRMED, "messages_confirmed_total", "counter", "Messages confirmed by RabbitMQ.")
METRIC(METRIC_PUBLISH_FAILED, "messages_failed_total", "counter",
       "Publishes that RabbitMQ refused, returned or did not confirm; each is repeated.")
METRIC(METRIC_PUBLISHER_CUTS, "publisher_cuts_total", "counter",
       "Publisher connections closed because a call was stuck.")
METRIC(METRIC_UNCONFIRMED, "receives_unconfirmed", "gauge",
       "Accepted receives whose message RabbitMQ has not confirmed.")
METRIC(METRIC_UNCOPIED, "receives_uncopied", "gauge",
       "Accepted receives that neither RabbitMQ nor Redis is known to have.")
METRIC(METRIC_RESTORED, "outbox_restored_total", "counter",
       "Messages written to an outbox again because Redis had lost them.")
METRIC(METRIC_ACCEPTED, "receives_accepted_total", "counter",
       "Receives accepted by the script for this gateway.")
METRIC(METRIC_OUTCOMES, "outcomes_total", "counter", "Outcomes received from workers.")
METRIC(METRIC_WAITING, "outcomes_waiting", "gauge",
       "Requests with ack=queued or ack=issued that wait for their outcome.")
METRIC(METRIC_USES, "uses_total", "counter",
       "Requests hold, use, release and rollback sent to workers.")
METRIC(METRIC_USES_WAITING, "uses_waiting", "gauge",
       "Requests hold, use, release and rollback that wait for a worker.")
METRIC(METRIC_USES_UNCONFIRMED, "uses_unconfirmed", "gauge",
       "Receives in messages of hold, use, release and rollback that RabbitMQ has not confirmed.")
METRIC(METRIC_LOOKUPS, "lookups_total", "counter",
       "Look-ups in PostgreSQL, without the periodic ones.")
METRIC(METRIC_LOOKUPS_FAILED, "lookups_failed_total", "counter",
       "Look-ups in PostgreSQL that failed.")
METRIC(METRIC_LOOKUPS_REFUSED, "lookups_refused_total", "counter",
       "Look-ups refused at COUPON_READS_MAX.")
METRIC(METRIC_LOOKUPS_WAITING, "lookups_waiting", "gauge",
       "Look-ups of all kinds that wait for a connection.")
METRIC(METRIC_READ_CONNECTIONS, "read_connections", "gauge",
       "Open connections to PostgreSQL for reads: coupons, quote and coupon.")
METRIC(METRIC_READS, "reads_total", "counter",
       "Statements sent for reads: coupons, quote and coupon.")
METRIC(METRIC_READS_FAILED, "reads_failed_total", "counter",
       "Reads that failed or waited too long; they were answered unavailable.")
METRIC(METRIC_READS_REFUSED, "reads_refused_total", "counter",
       "Reads refused at COUPON_READS_MAX; they were answered busy.")
METRIC(METRIC_READS_WAITING, "reads_waiting", "gauge", "Reads that wait for a connection.")
METRIC(METRIC_CODE_CONNECTIONS, "code_connections", "gauge",
       "Processes connected to PostgreSQL for exchange codes.")
METRIC(METRIC_CODES_WRONG, "codes_wrong_total", "counter", "Exchange codes answered code_invalid.")
METRIC(METRIC_CODES_HELD_BACK, "codes_held_back_total", "counter",
       "Exchange codes answered busy because of earlier wrong codes.")
METRIC(METRIC_CODES_WAITING, "codes_waiting", "gauge",
       "Exchange codes whose look-up in PostgreSQL waits or runs.")
METRIC(METRIC_CODE_SETS, "code_sets", "gauge",
       "Sets of exchange codes that the processes have loaded, summed over all processes.")
METRIC(METRIC_CODE_SETS_READ, "code_sets_read_total", "counter",
       "Times that a process read all sets of exchange codes because the sets or the key file had "
       "changed.")
METRIC(METRIC_CODE_KEYS_MISSING, "code_keys_missing", "gauge",
       "Keys that have made exchange codes and are missing in the file COUPON_CODE_KEYS, summed "
       "over all processes.")
