/*
 * Every setting once: SETTING_TEXT(field, ENVIRONMENT, flag, programs, default, help) and
 * SETTING_NUMBER(field, ENVIRONMENT, flag, programs, default, least, most, help). `make docs`
 * prints them into docs/reference/config.md. No include guard: included for its expansion.
 */
SETTING_TEXT(config_dir, "COUPON_CONFIG_DIR", "config-dir", CTL | RUSH, "/etc/couponmq",
	     "folder with couponmq.conf and couponctl.conf, whose lines NAME=value are settings; "
	     "couponctl.conf has precedence over couponmq.conf, and flags and environment over "
	     "both; empty: no files")
SETTING_TEXT(redis_url, "REDIS_URL", "redis-url", ALL, "redis://127.0.0.1:6379/0",
	     "Redis URL, redis://[user:password@]host:port/database, or its Sentinels, "
	     "redis+sentinel://[user:password@]sentinel:port,…/name/database; with TLS rediss://… "
	     "and rediss+sentinel://…")
SETTING_TEXT(redis_password, "REDIS_PASSWORD", "redis-password", ALL, "",
	     "password for a REDIS_URL without one (default: none)")
SETTING_TEXT(redis_sentinel_user, "REDIS_SENTINEL_USER", "redis-sentinel-user", ALL, "",
	     "user name for the Sentinels of redis+sentinel:// (default: the unnamed default user)")
SETTING_TEXT(redis_sentinel_password, "REDIS_SENTINEL_PASSWORD", "redis-sentinel-password", ALL, "",
	     "password for the Sentinels of redis+sentinel:// (default: none)")
SETTING_TEXT(redis_ca, "COUPON_REDIS_CA", "redis-ca", ALL, "",
	     "path of a file with the CA certificates that verify rediss:// servers (default: "
	     "those of the system)")
SETTING_TEXT(redis_durability, "COUPON_REDIS_DURABILITY", "redis-durability", GATEWAY | CTL | ADMIN,
	     "read",
	     "read: warn if Redis does not show its settings (CONFIG GET); acknowledged: do not "
	     "warn, because an operator has checked them another way")
SETTING_TEXT(amqp_url, "AMQP_URL", "amqp-url", GATEWAY | WORKER | CTL | ADMIN,
	     "amqp://guest@127.0.0.1:5672/%2f",
	     "RabbitMQ URL, amqp://user:password@host:port/vhost, with host:port,host:port for a "
	     "cluster, or amqps://… with TLS; RabbitMQ's own user guest has the password guest")
SETTING_TEXT(amqp_password, "AMQP_PASSWORD", "amqp-password", GATEWAY | WORKER | CTL | ADMIN, "",
	     "password for an AMQP_URL with a user and without a password (default: none)")
SETTING_TEXT(amqp_ca, "COUPON_AMQP_CA", "amqp-ca", GATEWAY | WORKER | CTL | ADMIN, "",
	     "path of a file with the CA certificates that verify amqps:// servers (default: those "
	     "of the system)")
SETTING_TEXT(rabbitmq_api, "COUPON_RABBITMQ_API", "rabbitmq-api", WORKER | CTL | ADMIN, "",
	     "RabbitMQ's management API, http://user:password@host:port, with host:port,host:port "
	     "for a cluster, or https://…; used to read on which nodes the queues have members "
	     "(default: none)")
SETTING_TEXT(
	rabbitmq_api_password, "COUPON_RABBITMQ_API_PASSWORD", "rabbitmq-api-password",
	WORKER | CTL | ADMIN, "",
	"password for a COUPON_RABBITMQ_API with a user and without a password (default: none)")
SETTING_TEXT(database_url, "DATABASE_URL", "database-url", ALL, "postgresql:///couponmq",
	     "PostgreSQL, a libpq connection string; the role needs no DDL rights")
SETTING_TEXT(database_password, "DATABASE_PASSWORD", "database-password", ALL, "",
	     "password for a DATABASE_URL or DATABASE_READ_URL without one (default: none)")
SETTING_TEXT(database_read_url, "DATABASE_READ_URL", "database-read-url", GATEWAY, "",
	     "PostgreSQL for reads that are only shown to users; may be a replica (default: "
	     "DATABASE_URL)")
SETTING_TEXT(database_admin_url, "DATABASE_ADMIN_URL", "database-admin-url", CTL, "",
	     "PostgreSQL as the owner of the tables, for migrate, setup and installation new "
	     "(default: DATABASE_URL)")
SETTING_TEXT(database_admin_password, "DATABASE_ADMIN_PASSWORD", "database-admin-password", CTL, "",
	     "password for a DATABASE_ADMIN_URL without one (default: none)")
SETTING_TEXT(gateway_password, "COUPON_GATEWAY_PASSWORD", "gateway-password", CTL, "",
	     "password that migrate gives to the role couponmq_gateway of PostgreSQL, which may "
	     "then log in (default: the role stays as it is)")
SETTING_TEXT(worker_password, "COUPON_WORKER_PASSWORD", "worker-password", CTL, "",
	     "password that migrate gives to the role couponmq_worker of PostgreSQL, which may "
	     "then log in (default: the role stays as it is)")
SETTING_TEXT(operator_password, "COUPON_OPERATOR_PASSWORD", "operator-password", CTL, "",
	     "password that migrate gives to the role couponmq_operator of PostgreSQL, which may "
	     "then log in (default: the role stays as it is)")
SETTING_TEXT(database_synchronous, "COUPON_DATABASE_SYNCHRONOUS", "database-synchronous",
	     GATEWAY | WORKER | CTL | ADMIN, "no",
	     "yes: each PostgreSQL COMMIT waits for a synchronous standby; the outcome is unknown "
	     "unless a standby is shown to have it, and no transaction begins while "
	     "synchronous_standby_names is empty")
SETTING_TEXT(zone, "COUPON_ZONE", "default-zone", CTL | ADMIN, "",
	     "time zone of the IANA database, as Europe/Berlin: of days and local times on command "
	     "lines, and of new campaigns (default: UTC)")
SETTING_TEXT(zookeeper_hosts, "ZOOKEEPER_HOSTS", "zookeeper-hosts", CTL, "127.0.0.1:2181",
	     "ZooKeeper servers for couponctl lock, host:port joined by commas")
SETTING_TEXT(code_keys, "COUPON_CODE_KEYS", "code-keys", GATEWAY | CTL | ADMIN, "",
	     "path of the file with the keys of exchange codes; only its owner and group may read "
	     "it (default: none)")
SETTING_TEXT(webhook_schemes, "COUPON_WEBHOOK_SCHEMES", "webhook-schemes", WORKER | CTL | ADMIN,
	     "https", "schemes that webhook URLs may have: https, or https,http")
SETTING_TEXT(webhook_networks, "COUPON_WEBHOOK_NETWORKS", "webhook-networks", WORKER | CTL | ADMIN,
	     "",
	     "networks outside the public Internet, for example 10.1.0.0/16,fd00::/8, to which "
	     "webhooks may be sent (default: none)")
SETTING_TEXT(webhook_ca, "COUPON_WEBHOOK_CA", "webhook-ca", WORKER | CTL | ADMIN, "",
	     "path of a file with the CA certificates that verify webhook endpoints (default: "
	     "those of the system)")
SETTING_TEXT(
	listen, "COUPON_LISTEN", "listen", GATEWAY | CTL | RUSH | ADMIN, "127.0.0.1:7411",
	"TCP address of the socket API, host:port or off; couponctl and coupon-rush connect to it")
SETTING_TEXT(unix_socket, "COUPON_UNIX_SOCKET", "unix-socket", GATEWAY, "",
	     "path of a Unix socket for the socket API (default: none)")
SETTING_TEXT(http_listen, "COUPON_HTTP_LISTEN", "http-listen", GATEWAY | RUSH, "127.0.0.1:7480",
	     "HTTP address, host:port or off; coupon-rush --http connects to it")
SETTING_TEXT(http_hosts, "COUPON_HTTP_HOSTS", "http-hosts", GATEWAY | ADMIN, "",
	     "host names, joined by commas, that HTTP requests may have in Host and Origin, in "
	     "addition to addresses and localhost (default: none)")
SETTING_TEXT(http_origins, "COUPON_HTTP_ORIGINS", "http-origins", GATEWAY, "",
	     "origins, joined by commas, whose web pages may use the HTTP API, for example "
	     "https://shop.example (default: none)")
SETTING_TEXT(auth, "COUPON_AUTH", "auth", GATEWAY, "off",
	     "authentication: off (whoever reaches a listener may do everything) or required (each "
	     "request needs an API key, a user token or a client certificate)")
SETTING_TEXT(unix_keys, "COUPON_UNIX_KEYS", "unix-keys", GATEWAY, "",
	     "API key that applies to a user of this machine on the Unix socket: pairs UID:KEY, "
	     "joined by commas (default: none)")
SETTING_TEXT(insecure, "COUPON_INSECURE", "insecure", GATEWAY | WORKER | ADMIN, "no",
	     "yes: a listener that other machines can reach starts without TLS and without "
	     "COUPON_AUTH=required, and logs a warning")
SETTING_NUMBER(keys_stale_s, "COUPON_KEYS_STALE_S", "keys-stale-s", GATEWAY | ADMIN, 3600, 1,
	       604800,
	       "time for which API keys are still checked while neither Redis nor PostgreSQL "
	       "answers; after that, requests with a key are answered unavailable")
SETTING_TEXT(token_keys, "COUPON_TOKEN_KEYS", "token-keys", GATEWAY, "",
	     "path of a JSON Web Key Set whose keys verify user tokens (default: none)")
SETTING_TEXT(token_issuer, "COUPON_TOKEN_ISSUER", "token-issuer", GATEWAY, "",
	     "the claim iss that user tokens must have")
SETTING_TEXT(token_audience, "COUPON_TOKEN_AUDIENCE", "token-audience", GATEWAY, "",
	     "value that the claim aud of user tokens must contain")
SETTING_NUMBER(token_leeway_s, "COUPON_TOKEN_LEEWAY_S", "token-leeway-s", GATEWAY, 30, 0, 300,
	       "greatest accepted clock difference to the issuer of user tokens")
SETTING_TEXT(connections_networks, "COUPON_CONNECTIONS_NETWORKS", "connections-networks",
	     GATEWAY | WORKER | ADMIN, "127.0.0.0/8,::1",
	     "networks, joined by commas, whose addresses may open any number of connections, for "
	     "example balancers and backends")
SETTING_TEXT(proxy_from, "COUPON_PROXY_FROM", "proxy-from", GATEWAY, "",
	     "networks, joined by commas, of balancers that begin every connection with the PROXY "
	     "protocol (default: none)")
SETTING_TEXT(worker_http_listen, "COUPON_WORKER_HTTP_LISTEN", "worker-http-listen", WORKER, "off",
	     "HTTP address for the metrics and health of this worker, host:port or off")
SETTING_TEXT(admin_listen, "COUPON_ADMIN_LISTEN", "admin-listen", ADMIN, "127.0.0.1:7490",
	     "HTTP address of coupon-admin, host:port")
SETTING_TEXT(admin_metrics, "COUPON_ADMIN_METRICS", "admin-metrics", ADMIN, "",
	     "HTTP addresses of the gateways and workers that the console shows, host:port joined "
	     "by commas; put http:// or https:// before an address where COUPON_TLS_CA implies the "
	     "other scheme (default: none)")
SETTING_NUMBER(
	admin_timeout_ms, "COUPON_ADMIN_TIMEOUT_MS", "admin-timeout-ms", ADMIN, 60000, 100, 600000,
	"time limit for a command; after it the command is killed, and its outcome is unknown")
SETTING_NUMBER(admin_session_s, "COUPON_ADMIN_SESSION_S", "admin-session-s", ADMIN, 43200, 1,
	       604800, "duration of a console session")
SETTING_TEXT(admin_approval, "COUPON_ADMIN_APPROVAL", "admin-approval", ADMIN, "",
	     "commands that coupon-admin runs only when a second person has agreed: close, void "
	     "or close,void (default: none)")
SETTING_TEXT(admin_user_header, "COUPON_ADMIN_USER_HEADER", "admin-user-header", ADMIN, "",
	     "header in which a reverse proxy names the person whom it has signed in to "
	     "coupon-admin, for example X-Forwarded-User (default: none)")
SETTING_TEXT(admin_proxy_networks, "COUPON_ADMIN_PROXY_NETWORKS", "admin-proxy-networks", ADMIN, "",
	     "networks, joined by commas, of the reverse proxies whose COUPON_ADMIN_USER_HEADER "
	     "is believed; from elsewhere the header is refused (default: none)")
SETTING_TEXT(admin_users, "COUPON_ADMIN_USERS", "admin-users", ADMIN, "",
	     "what the people of COUPON_ADMIN_USER_HEADER may do: pairs NAME:ROLE, joined by "
	     "commas, with the roles monitor, campaign and admin; the name * is everybody else "
	     "(default: none)")
SETTING_TEXT(tls_cert, "COUPON_TLS_CERT", "tls-cert", GATEWAY | WORKER | CTL | ADMIN, "",
	     "path of a PEM file with the certificate of the TCP listeners, followed by its chain "
	     "up to the CA; if set, these listeners accept only TLS (default: none)")
SETTING_TEXT(tls_key, "COUPON_TLS_KEY", "tls-key", GATEWAY | WORKER | ADMIN, "",
	     "path of the file with the private key of COUPON_TLS_CERT; only its owner and group "
	     "may read it")
SETTING_TEXT(tls_client_ca, "COUPON_TLS_CLIENT_CA", "tls-client-ca", GATEWAY | WORKER | ADMIN, "",
	     "path of a file with the CA certificates that verify client certificates (default: "
	     "none, so clients are not asked for a certificate)")
SETTING_TEXT(tls_min, "COUPON_TLS_MIN", "tls-min", GATEWAY | WORKER | ADMIN, "1.2",
	     "lowest version of TLS: 1.2 or 1.3")
SETTING_TEXT(tls_ca, "COUPON_TLS_CA", "tls-ca", CTL | RUSH | ADMIN, "",
	     "path of a file with the CA certificates that verify the gateway; if set, connections "
	     "to COUPON_LISTEN use TLS (default: none, no TLS)")
SETTING_TEXT(gateway_key, "COUPON_GATEWAY_KEY", "gateway-key", CTL | RUSH | ADMIN, "",
	     "API key or user token that is sent to the gateway (default: none)")
SETTING_TEXT(log_format, "COUPON_LOG_FORMAT", "log-format", ALL, "text",
	     "log format: text (key=value) or json")
SETTING_TEXT(log_level, "COUPON_LOG_LEVEL", "log-level", ALL, "info",
	     "least severe level that is logged: debug, info, warn or error")
SETTING_NUMBER(log_access, "COUPON_LOG_ACCESS", "log-access", GATEWAY, 0, 0, 1000000,
	       "log one in N requests, chosen at random, with its answer (event=request); 1: each, "
	       "0: none")
SETTING_TEXT(trace, "COUPON_TRACE", "trace", GATEWAY | WORKER, "",
	     "kinds of state changes to log: call, delivery, lookup, redis or all; separated by "
	     "commas")
SETTING_NUMBER(processes, "COUPON_PROCESSES", "processes", GATEWAY, 1, 1, 64,
	       "number of processes that share the listeners")
SETTING_NUMBER(drain_s, "COUPON_DRAIN_S", "drain-s", GATEWAY, 5, 0, 600,
	       "time after SIGTERM during which /readyz answers 503 and all requests are still "
	       "served, so that balancers remove the gateway; 0: end at once")
SETTING_NUMBER(
	stop_wait_s, "COUPON_STOP_WAIT_S", "stop-wait-s", GATEWAY, 3600, 0, 86400,
	"longest time that a stopping gateway waits until RabbitMQ or Redis has all receives that "
	"it accepted; receives that neither has by then are lost, and the log names each")
SETTING_NUMBER(connections_max, "COUPON_CONNECTIONS_MAX", "connections-max", GATEWAY | CTL, 20000,
	       1, 1000000,
	       "maximum open connections of the socket API and HTTP per process; further "
	       "connections are answered busy and closed")
SETTING_NUMBER(connections_per_address_max, "COUPON_CONNECTIONS_PER_ADDRESS_MAX",
	       "connections-per-address-max", GATEWAY, 1000, 0, 1000000,
	       "maximum open connections from one address (one /64 for IPv6) per process; further "
	       "connections are answered busy and closed; 0: no limit")
SETTING_NUMBER(buffer_bytes, "COUPON_BUFFER_BYTES", "buffer-bytes", GATEWAY, 67108864, 131072,
	       1073741824,
	       "maximum size of all input and unread replies of the socket API and unread replies "
	       "over HTTP, per process, and as much again for HTTP requests that have not arrived "
	       "completely; clients that hold most are cut off or answered busy")
SETTING_NUMBER(inflight_per_connection_max, "COUPON_INFLIGHT_PER_CONNECTION_MAX",
	       "inflight-per-connection-max", GATEWAY, 2048, 1, 1000000,
	       "maximum unanswered requests per connection; at the limit the gateway stops reading "
	       "from the connection until half are answered")
SETTING_NUMBER(inflight_max, "COUPON_INFLIGHT_MAX", "inflight-max", GATEWAY, 50000, 1, 10000000,
	       "maximum unanswered requests per process; further requests are answered busy")
SETTING_NUMBER(unconfirmed_max, "COUPON_UNCONFIRMED_MAX", "unconfirmed-max", GATEWAY, 200000, 1,
	       100000000,
	       "maximum receives per process that RabbitMQ has not confirmed; further requests are "
	       "answered busy")
SETTING_NUMBER(unconfirmed_per_coupon_max, "COUPON_UNCONFIRMED_PER_COUPON_MAX",
	       "unconfirmed-per-coupon-max", GATEWAY, 100000, 1, 100000000,
	       "maximum receives of one coupon per process that RabbitMQ has not confirmed; "
	       "further requests are answered busy")
SETTING_NUMBER(unsettled_max, "COUPON_UNSETTLED_MAX", "unsettled-max", GATEWAY, 2000000, 1,
	       100000000,
	       "maximum messages of one coupon that are accepted but not yet settled in "
	       "PostgreSQL; further requests are answered busy")
SETTING_NUMBER(
	output_limit_bytes, "COUPON_OUTPUT_LIMIT_BYTES", "output-limit-bytes", GATEWAY, 524288,
	4096, 1073741824,
	"maximum size of the replies that a client has not read; above it the connection is closed")
SETTING_NUMBER(
	idle_timeout_ms, "COUPON_IDLE_TIMEOUT_MS", "idle-timeout-ms", GATEWAY, 300000, 100,
	86400000,
	"a connection without requests in flight is closed after this time without a received byte")
SETTING_NUMBER(batch_receives_max, "COUPON_BATCH_RECEIVES_MAX", "batch-receives-max", GATEWAY, 256,
	       1, 256, "maximum requests for one coupon in one script call")
SETTING_NUMBER(calls_per_coupon_max, "COUPON_CALLS_PER_COUPON_MAX", "calls-per-coupon-max", GATEWAY,
	       8, 1, 64, "maximum script calls in flight for one coupon")
SETTING_NUMBER(redis_replicas, "COUPON_REDIS_REPLICAS", "redis-replicas", GATEWAY, 0, 0, 16,
	       "number of Redis replicas that must have a receive before it is answered accepted; "
	       "0: the master alone is enough")
SETTING_NUMBER(call_timeout_ms, "COUPON_CALL_TIMEOUT_MS", "call-timeout-ms", GATEWAY, 2000, 10,
	       60000,
	       "time limit for a reply of Redis or PostgreSQL; after it the outcome is unknown and "
	       "the connection is replaced")
SETTING_NUMBER(issued_timeout_ms, "COUPON_ISSUED_TIMEOUT_MS", "issued-timeout-ms", GATEWAY, 5000,
	       10, 600000,
	       "time limit for ack=queued, ack=issued and the operations of orders (hold, use, "
	       "release, rollback); after it the answer is unknown")
SETTING_NUMBER(memory_ms, "COUPON_MEMORY_MS", "memory-ms", GATEWAY, 100, 0, 100,
	       "time for which a refusal such as out_of_stock is repeated without a call to Redis; "
	       "0: never")
SETTING_NUMBER(read_connections, "COUPON_READ_CONNECTIONS", "read-connections", GATEWAY, 2, 1, 64,
	       "PostgreSQL connections per process for reads that are only shown to users")
SETTING_NUMBER(reads_max, "COUPON_READS_MAX", "reads-max", GATEWAY, 1000, 1, 1000000,
	       "maximum reads and look-ups in PostgreSQL, of each kind, that wait in one process; "
	       "further ones are answered busy")
SETTING_NUMBER(code_attempts, "COUPON_CODE_ATTEMPTS", "code-attempts", GATEWAY, 5, 0, 1000,
	       "wrong exchange codes that a user may send without a delay; after each further "
	       "wrong code the user must wait, each time twice as long; 0: no limit")
SETTING_NUMBER(code_wrong_max, "COUPON_CODE_WRONG_MAX", "code-wrong-max", GATEWAY, 1000, 0, 1000000,
	       "wrong exchange codes per second from one address (one /64 for IPv6), and ten times "
	       "as many from all addresses, before further codes are answered busy; 0: no limit")
SETTING_NUMBER(rate_address, "COUPON_RATE_ADDRESS", "rate-address", GATEWAY, 100, 0, 1000000,
	       "requests per second without a key from one address (one /64 for IPv6), after a "
	       "burst of two seconds' worth but at least 20; further requests are answered "
	       "rate_limited; 0: no limit")
SETTING_NUMBER(rate_user, "COUPON_RATE_USER", "rate-user", GATEWAY, 20, 0, 1000000,
	       "requests per second of one user with a user token, with the same burst as "
	       "COUPON_RATE_ADDRESS; further requests are answered rate_limited; 0: no limit")
SETTING_NUMBER(prefetch, "COUPON_PREFETCH", "prefetch", WORKER, 256, 1, 2000,
	       "maximum unacked messages of one worker")
SETTING_NUMBER(
	settle_timeout_ms, "COUPON_SETTLE_TIMEOUT_MS", "settle-timeout-ms", WORKER, 30000, 100,
	600000,
	"time limit for a settling transaction; after it the transaction is cancelled and retried")
SETTING_NUMBER(
	keep_uses_bytes, "COUPON_KEEP_USES_BYTES", "keep-uses-bytes", WORKER, 268435456, 1048576,
	1099511627776,
	"memory of Redis for what orders have done with receives in the last 7 days, about 300 "
	"bytes a use, for a PostgreSQL that is put back to an earlier moment; the oldest are "
	"removed first, also when 90 % of maxmemory is used")
SETTING_NUMBER(keeper_lease_ms, "COUPON_KEEPER_LEASE_MS", "keeper-lease-ms", WORKER, 4000, 500,
	       600000, "lifetime of the keeper's lock without renewal")
SETTING_TEXT(recover, "COUPON_RECOVER", "recover", WORKER, "manual",
	     "what to do when PostgreSQL was put back to an earlier moment: manual (wait for "
	     "couponctl recover), or auto (the keeper brings back what a promoted standby lacks if "
	     "that is only settled receives)")
SETTING_NUMBER(recover_max, "COUPON_RECOVER_MAX", "recover-max", WORKER, 100000, 1, 2147483647,
	       "maximum missing transactions that COUPON_RECOVER=auto brings back; if more are "
	       "missing, the worker waits for couponctl recover")
SETTING_NUMBER(keeper_round_ms, "COUPON_KEEPER_ROUND_MS", "keeper-round-ms", WORKER, 500, 20, 60000,
	       "pause between two rounds of the keeper")
SETTING_NUMBER(
	resend_after_ms, "COUPON_RESEND_AFTER_MS", "resend-after-ms", WORKER | CTL | ADMIN, 3000,
	100, 3600000,
	"age, by the clock of Redis, at which the keeper publishes a possibly lost message again")
SETTING_NUMBER(keep_closed_s, "COUPON_KEEP_CLOSED_S", "keep-closed-s", WORKER, 604800, 1, 31536000,
	       "time for which the keys of a closed and settled coupon stay in Redis")
SETTING_NUMBER(webhook_connections, "COUPON_WEBHOOK_CONNECTIONS", "webhook-connections", WORKER, 64,
	       0, 1000, "maximum requests to webhooks at once in this worker; 0: it sends none")
SETTING_NUMBER(webhook_timeout_ms, "COUPON_WEBHOOK_TIMEOUT_MS", "webhook-timeout-ms",
	       WORKER | CTL | ADMIN, 15000, 100, 60000,
	       "time limit for a request to a webhook, including the connect")
SETTING_NUMBER(
	webhook_attempts, "COUPON_WEBHOOK_ATTEMPTS", "webhook-attempts", WORKER, 10, 1, 100,
	"number of attempts to deliver to a webhook; after the last one the delivery is given up")
SETTING_NUMBER(webhook_retry_ms, "COUPON_WEBHOOK_RETRY_MS", "webhook-retry-ms", WORKER, 5000, 10,
	       60000,
	       "delay after the first failed attempt of a webhook delivery; later delays grow in "
	       "proportion")
SETTING_NUMBER(webhook_disable_s, "COUPON_WEBHOOK_DISABLE_S", "webhook-disable-s", WORKER, 432000,
	       1, 31536000, "a webhook is disabled when all attempts have failed for this time")
SETTING_NUMBER(webhook_keep_s, "COUPON_WEBHOOK_KEEP_S", "webhook-keep-s", WORKER, 2592000, 1,
	       31536000, "time for which a webhook delivery that was given up is kept")
SETTING_TEXT(event_source, "COUPON_EVENT_SOURCE", "event-source", WORKER, "/couponmq",
	     "the source of every event, a URI reference; source and id together identify an event")
SETTING_NUMBER(event_log_max, "COUPON_EVENT_LOG_MAX", "event-log-max", WORKER | CTL | ADMIN,
	       1000000, 1, 1000000000000,
	       "maximum events that wait to be published before an alarm; above it nothing is "
	       "dropped or refused")
