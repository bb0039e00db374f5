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
METRIC(METRIC_RELAY_ACTIVE, "worker_relay_active", "gauge",
       "1 while this worker publishes the events of all.")
METRIC(METRIC_RELAY_EVENTS, "worker_relay_events_total", "counter",
       "Events that this worker has published.")
METRIC(METRIC_RELAY_MESSAGES, "worker_relay_messages_total", "counter",
       "Messages in which these events were published.")
METRIC(METRIC_RELAY_FAILURES, "worker_relay_failures_total", "counter",
       "Attempts to publish events that RabbitMQ did not confirm; they are repeated.")
METRIC(METRIC_EVENTS_WAITING, "worker_events_waiting", "gauge",
       "Events that wait to be published, while this worker publishes them.")
METRIC(METRIC_EVENTS_AGE_MS, "worker_events_oldest_ms", "gauge",
       "Age of the oldest of them, in milliseconds.")
METRIC(METRIC_EVENTS_BYTES, "worker_event_log_bytes", "gauge",
       "Size of the event log on disk, while this worker publishes the events.")
METRIC(METRIC_DATABASE_UP, "worker_database_up", "gauge",
       "1 while the worker is connected to PostgreSQL.")
METRIC(METRIC_WEBHOOK_DELIVERED, "worker_webhook_delivered_total", "counter",
       "Deliveries to webhooks that have arrived.")
METRIC(METRIC_WEBHOOK_FAILED, "worker_webhook_failed_total", "counter",
       "Attempts to deliver to webhooks that have failed.")
METRIC(METRIC_WEBHOOK_GIVEN_UP, "worker_webhook_given_up_total", "counter",
       "Of those, last attempts: the delivery is not tried again.")
METRIC(METRIC_WEBHOOK_SENDING, "worker_webhook_sending", "gauge",
       "Deliveries that this worker is sending.")
METRIC(METRIC_WEBHOOK_WAITING, "worker_webhook_waiting", "gauge",
       "Deliveries that wait for their webhook, of all enabled ones.")
METRIC(METRIC_WEBHOOK_OLDEST, "worker_webhook_oldest_milliseconds", "gauge",
       "Age of the oldest of them.")
METRIC(METRIC_WEBHOOK_KEPT, "worker_webhook_given_up", "gauge",
       "Deliveries that are not tried again, and are kept.")
METRIC(METRIC_WEBHOOK_DISABLED, "worker_webhook_disabled", "gauge", "Webhooks that are disabled.")
METRIC(METRIC_WEBHOOK_DROPPED, "worker_webhook_dropped_events", "gauge",
       "Events that were dropped because the queue of a webhook was full, of all webhooks.")
