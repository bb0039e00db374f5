/*
 * Every metric of the worker once: METRIC(enumerator, "name", "type", "help"), and of the loop's
 * counters STAT(enumerator, "name", "help"): the log line `stats` has the name, the metric is
 * worker_NAME_total. Names go out with the prefix couponmq_; `make docs` prints them into
 * docs/reference/metrics.md. No include guard: included for its expansion.
 */
STAT(METRIC_MESSAGES, "messages", "Messages received, including redeliveries.")
STAT(METRIC_RECEIVES, "receives", "Receives in committed transactions.")
STAT(METRIC_ISSUED, "issued", "Receives issued for the first time.")
STAT(METRIC_REPEATED, "repeated", "Receives that had already been issued.")
STAT(METRIC_REJECTED, "rejected", "Rejected receives.")
STAT(METRIC_USES, "uses", "Uses of receives in committed transactions.")
STAT(METRIC_DEAD, "dead", "Messages moved to the dead-letter queue and confirmed.")
STAT(METRIC_TRANSACTIONS, "transactions", "Committed transactions.")
STAT(METRIC_RETRIES, "retries",
     "Transactions that PostgreSQL refused or whose connection was lost; they were retried.")
STAT(METRIC_BLOCKED, "blocked",
     "Transactions that hit a lock or statement timeout; they were split or put off.")
STAT(METRIC_PARKED, "parked", "Messages moved to the parking queue and confirmed.")
STAT(METRIC_REQUEUED, "requeued",
     "Messages moved to the end of the receive queue because the parking queue refuses them.")
STAT(METRIC_RESCUED, "rescued",
     "Messages with a high delivery count that were published to their queue again and "
     "confirmed.")
STAT(METRIC_REPLIES, "replies", "Outcomes sent to gateways, one message each.")
STAT(METRIC_REPLIES_LOST, "replies_lost",
     "Replies that could not be sent; the gateway looks the receive up instead.")
METRIC(METRIC_HELD, "worker_held", "gauge", "Messages that this worker holds unacked.")
METRIC(METRIC_WAITING, "worker_waiting", "gauge",
       "Messages that this worker holds and that wait for a transaction.")
METRIC(METRIC_DEAD_WAITING, "worker_dead_waiting", "gauge",
       "Messages that this worker holds and that wait to be moved to the dead-letter queue.")
METRIC(METRIC_PUT_OFF, "worker_put_off", "gauge",
       "Messages that this worker holds and that wait because their coupon is put off.")
METRIC(METRIC_PUT_OFF_COUPONS, "worker_put_off_coupons", "gauge",
       "Coupons that this worker puts off because they are locked or take too long.")
METRIC(METRIC_BATCH, "worker_batch_receives", "gauge",
       "Receives in the last committed transaction.")
METRIC(METRIC_CONSUMER_UP, "worker_consumer_up", "gauge",
       "1 while the worker consumes from RabbitMQ.")
METRIC(METRIC_PUBLISHER_UP, "worker_publisher_up", "gauge",
       "1 while the worker can publish to RabbitMQ: replies, dead letters, parked messages.")
METRIC(METRIC_QUEUES_DIFFERING, "worker_queues_differing", "gauge",
       "Queues whose arguments differ from those that the programs declare.")
METRIC(METRIC_QUEUE_MEMBERS_WANTED, "worker_queue_members_wanted", "gauge",
       "Members that each queue should have on RabbitMQ nodes; 0 while that is unknown.")
METRIC(METRIC_QUEUE_MEMBERS, "worker_queue_members", "gauge",
       "Members of the queue that has the fewest.")
METRIC(METRIC_QUEUE_MEMBERS_ONLINE, "worker_queue_members_online", "gauge",
       "Online members of the queue that has the fewest online.")
METRIC(METRIC_QUEUE_MESSAGES, "worker_queue_messages", "gauge",
       "Messages of the receive queue, including those that workers hold.")
METRIC(METRIC_OUTBOX_REMOVED, "worker_outbox_removed_total", "counter",
       "Messages removed from an outbox after all their receives got an outcome.")
METRIC(METRIC_OUTBOX_FORGOTTEN, "worker_outbox_forgotten_total", "counter",
       "Messages not removed or not marked as dead because Redis refused or was unreachable for "
       "too long.")
METRIC(METRIC_OUTBOX_RESTORED, "worker_outbox_restored_total", "counter",
       "Messages written to an outbox again because Redis had lost them.")
METRIC(METRIC_UNCOPIED, "worker_receives_uncopied", "gauge",
       "Receives that this worker holds and that Redis lost and does not have again yet.")
METRIC(METRIC_RELAY_ACTIVE, "worker_relay_active", "gauge",
       "1 while this worker publishes the events of all workers.")
METRIC(METRIC_RELAY_EVENTS, "worker_relay_events_total", "counter",
       "Events published by this worker.")
METRIC(METRIC_RELAY_MESSAGES, "worker_relay_messages_total", "counter",
       "Messages of events published by this worker.")
METRIC(METRIC_RELAY_FAILURES, "worker_relay_failures_total", "counter",
       "Attempts to publish events that RabbitMQ did not confirm; they are repeated.")
METRIC(METRIC_EVENTS_WAITING, "worker_events_waiting", "gauge",
       "Events that wait to be published, while this worker publishes them.")
METRIC(METRIC_EVENTS_AGE_MS, "worker_events_oldest_ms", "gauge",
       "Age of the oldest event that waits to be published, in milliseconds.")
METRIC(METRIC_EVENTS_BYTES, "worker_event_log_bytes", "gauge",
       "Size of the event log on disk, while this worker publishes the events.")
METRIC(METRIC_DATABASE_UP, "worker_database_up", "gauge",
       "1 while the worker is connected to PostgreSQL.")
METRIC(METRIC_POSTGRESQL_OLD, "worker_postgresql_old", "gauge",
       "1 while PostgreSQL is an old primary and Redis follows another one; this worker then does "
       "nothing.")
METRIC(METRIC_WEBHOOK_DELIVERED, "worker_webhook_delivered_total", "counter",
       "Successful deliveries to webhooks.")
METRIC(METRIC_WEBHOOK_FAILED, "worker_webhook_failed_total", "counter",
       "Failed attempts to deliver to webhooks.")
METRIC(METRIC_WEBHOOK_GIVEN_UP, "worker_webhook_given_up_total", "counter",
       "Deliveries to webhooks given up after their last attempt.")
METRIC(METRIC_WEBHOOK_SENDING, "worker_webhook_sending", "gauge",
       "Webhook deliveries that this worker is sending.")
METRIC(METRIC_WEBHOOK_WAITING, "worker_webhook_waiting", "gauge",
       "Deliveries that wait to be sent, over all enabled webhooks.")
METRIC(METRIC_WEBHOOK_OLDEST, "worker_webhook_oldest_milliseconds", "gauge",
       "Age of the oldest delivery that waits, in milliseconds.")
METRIC(METRIC_WEBHOOK_KEPT, "worker_webhook_given_up", "gauge",
       "Deliveries that were given up and are still kept.")
METRIC(METRIC_WEBHOOK_DISABLED, "worker_webhook_disabled", "gauge", "Webhooks that are disabled.")
METRIC(METRIC_WEBHOOK_DROPPED, "worker_webhook_dropped_events", "gauge",
       "Events dropped because the queue of a webhook was full, over all webhooks.")
METRIC(METRIC_TLS_EXPIRES, "worker_tls_certificate_expires_seconds", "gauge",
       "Seconds until the certificate in use expires; negative after that; 0 without a "
       "certificate.")
METRIC(METRIC_TLS_TROUBLE, "worker_tls_trouble", "gauge",
       "Processes that could not load their TLS files, or whose certificate has expired.")
