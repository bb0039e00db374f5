/*
 * Every metric of the worker's loop once, besides the loop's counters (counter_table.h):
 * METRIC(enumerator, "name", "type", "help"). The name goes out with the prefix couponmq_;
 * docs/metrics.md is checked against this table. No include guard: included for its expansion.
 */
METRIC(METRIC_HELD, "worker_held", "gauge", "Messages that this worker holds unacked.")
METRIC(METRIC_WAITING, "worker_waiting", "gauge", "Of those, messages that wait for a transaction.")
METRIC(METRIC_DEAD_WAITING, "worker_dead_waiting", "gauge",
       "Of those, messages that wait to be dead-lettered.")
METRIC(METRIC_PUT_OFF, "worker_put_off", "gauge",
       "Of those, messages that wait because their coupon is put off.")
METRIC(METRIC_PUT_OFF_COUPONS, "worker_put_off_coupons", "gauge",
       "Coupons that this worker puts off: they are locked, or take too long.")
METRIC(METRIC_BATCH, "worker_batch_receives", "gauge",
       "Receives in the last committed transaction.")
METRIC(METRIC_CONSUMER_UP, "worker_consumer_up", "gauge",
       "1 while the worker consumes from RabbitMQ.")
METRIC(METRIC_PUBLISHER_UP, "worker_publisher_up", "gauge",
       "1 while the worker can publish to RabbitMQ: replies, dead letters, parked messages.")
METRIC(METRIC_QUEUES_DIFFERING, "worker_queues_differing", "gauge",
       "Queues that exist with other arguments than the programs declare.")
METRIC(METRIC_OUTBOX_REMOVED, "worker_outbox_removed_total", "counter",
       "Messages removed from an outbox after all their receives got an outcome.")
METRIC(METRIC_OUTBOX_FORGOTTEN, "worker_outbox_forgotten_total", "counter",
       "Messages not removed or not marked as dead, because Redis refused or was away too long.")
METRIC(METRIC_DATABASE_UP, "worker_database_up", "gauge",
       "1 while the worker is connected to PostgreSQL.")
