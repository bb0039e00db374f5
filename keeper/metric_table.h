/*
 * Every metric of the keeper once: METRIC(enumerator, "name", "type", "help"). The name is exported
 * with the prefix couponmq_; `make docs` prints them into docs/reference/metrics.md. No include
 * guard: included for its expansion.
 */
METRIC(KEEPER_METRIC_REDIS_UP, "keeper_redis_up", "gauge",
       "1 while the keeper's thread is connected to Redis.")
METRIC(KEEPER_METRIC_DATABASE_UP, "keeper_database_up", "gauge",
       "1 while the keeper's thread is connected to PostgreSQL.")
METRIC(KEEPER_METRIC_BEHIND, "keeper_postgresql_behind", "gauge",
       "1 while PostgreSQL lacks transactions that Redis knows of, because it was put back to an "
       "earlier moment.")
METRIC(KEEPER_METRIC_RECOVERY_WAITS, "keeper_recovery_waits", "gauge",
       "1 while PostgreSQL lacks transactions and an operator has to run couponctl recover.")
METRIC(KEEPER_METRIC_RECOVERIES, "keeper_recoveries_total", "counter",
       "Times that this worker brought back what a promoted standby lacked.")
METRIC(KEEPER_METRIC_GATEWAYS_LACKING, "keeper_gateways_lacking", "gauge",
       "Gateway processes that may hold receives which neither RabbitMQ nor Redis has: they "
       "reported it, or have not reported since Redis lost its data. A process that PostgreSQL has "
       "not heard from for 10 min does not count.")
METRIC(KEEPER_METRIC_FOREIGN, "keeper_installation_differs", "gauge",
       "1 while Redis belongs to another installation than PostgreSQL; this worker then does "
       "nothing.")
METRIC(KEEPER_METRIC_ELECTED, "keeper_elected", "gauge", "1 while this worker is the keeper.")
METRIC(KEEPER_METRIC_ELECTIONS, "keeper_elections_total", "counter",
       "Times that this worker was elected keeper.")
METRIC(KEEPER_METRIC_ROUNDS, "keeper_rounds_total", "counter", "Rounds of the keeper.")
METRIC(KEEPER_METRIC_WORK, "keeper_work_milliseconds_total", "counter",
       "Total duration of the keeper's rounds.")
METRIC(KEEPER_METRIC_ROUND, "keeper_round_milliseconds", "gauge", "Duration of the last round.")
METRIC(KEEPER_METRIC_SWEEP, "keeper_sweep_milliseconds", "gauge",
       "Duration of the last sweep over all coupons, including the pauses between its rounds.")
METRIC(KEEPER_METRIC_ROWS, "keeper_rebuild_rows", "gauge",
       "User coupons of the coupon that is being rebuilt in Redis; 0 if none is, or if it has few.")
METRIC(KEEPER_METRIC_FILLED, "keeper_rebuild_rows_filled", "gauge",
       "User coupons of the coupon being rebuilt that Redis already has.")
METRIC(KEEPER_METRIC_REBUILT, "keeper_rebuilt_total", "counter", "Coupons rebuilt in Redis.")
METRIC(KEEPER_METRIC_CLOSED, "keeper_closed_total", "counter", "Coupons closed after their end.")
METRIC(KEEPER_METRIC_SETTLED, "keeper_settled_total", "counter",
       "Closed coupons marked as settled.")
METRIC(KEEPER_METRIC_RESENT, "keeper_resent_total", "counter",
       "Messages published again from an outbox.")
METRIC(KEEPER_METRIC_PUT_OFF, "keeper_put_off_total", "counter",
       "Times that a coupon was put off because Redis or PostgreSQL refused an operation on it or "
       "a row was locked.")
METRIC(KEEPER_METRIC_KEYS_COPIED, "keeper_keys_copied_total", "counter",
       "API keys copied to Redis because it did not have their last change.")
METRIC(KEEPER_METRIC_KEYS_AHEAD, "keeper_keys_ahead", "gauge",
       "1 while Redis has API key changes that PostgreSQL lacks, because PostgreSQL was put back "
       "to an earlier moment.")
METRIC(KEEPER_METRIC_UNEQUAL, "keeper_coupons_unequal", "gauge",
       "Coupons whose numbers in Redis and PostgreSQL did not add up (P4) in at least three "
       "checks.")
METRIC(KEEPER_METRIC_IN_FLIGHT, "keeper_receives_in_flight", "gauge",
       "Accepted receives without an outcome in PostgreSQL, over all watched coupons.")
METRIC(KEEPER_METRIC_RESERVED, "keeper_receives_reserved", "gauge",
       "Accepted receives of older generations without an outcome in PostgreSQL.")
METRIC(KEEPER_METRIC_UNFREED, "keeper_coupons_unfreed", "gauge",
       "Coupons with rejected receives that are not yet freed in Redis.")
METRIC(KEEPER_METRIC_LOST, "keeper_stock_lost", "gauge",
       "Stock that Redis had and PostgreSQL does not have, over all watched coupons.")
METRIC(KEEPER_METRIC_OUTBOX, "keeper_outbox_messages", "gauge",
       "Messages in the outboxes of all watched coupons.")
METRIC(KEEPER_METRIC_OUTBOX_AGE, "keeper_outbox_age_milliseconds", "gauge",
       "Age of the oldest message in the outboxes.")
METRIC(KEEPER_METRIC_USES_BYTES, "keeper_uses_bytes", "gauge",
       "Approximate Redis memory for the uses of receives by orders.")
METRIC(KEEPER_METRIC_USES_COVERED, "keeper_uses_covered_milliseconds", "gauge",
       "Greatest age of a PostgreSQL backup for which Redis still has all later uses of receives; "
       "at most seven days.")
