/*
 * Every metric of the keeper once: METRIC(enumerator, "name", "type", "help"). The name goes out
 * with the prefix couponmq_; docs/metrics.md is checked against this table. No include guard:
 * included for its expansion.
 */
METRIC(KEEPER_METRIC_REDIS_UP, "keeper_redis_up", "gauge",
       "1 while the keeper's thread is connected to Redis.")
METRIC(KEEPER_METRIC_DATABASE_UP, "keeper_database_up", "gauge",
       "1 while the keeper's thread is connected to PostgreSQL.")
METRIC(KEEPER_METRIC_ELECTED, "keeper_elected", "gauge", "1 where this worker is the keeper.")
METRIC(KEEPER_METRIC_ELECTIONS, "keeper_elections_total", "counter",
       "Times this worker was elected.")
METRIC(KEEPER_METRIC_ROUNDS, "keeper_rounds_total", "counter", "Rounds of the keeper.")
METRIC(KEEPER_METRIC_WORK, "keeper_work_milliseconds_total", "counter", "Time the rounds took.")
METRIC(KEEPER_METRIC_ROUND, "keeper_round_milliseconds", "gauge", "How long the last round took.")
METRIC(KEEPER_METRIC_SWEEP, "keeper_sweep_milliseconds", "gauge",
       "How long the last look at all coupons took, the pauses between its rounds included.")
METRIC(KEEPER_METRIC_CLOSED, "keeper_closed_total", "counter",
       "Coupons closed because their end had passed.")
METRIC(KEEPER_METRIC_SETTLED, "keeper_settled_total", "counter",
       "Closed coupons that were found to be settled.")
METRIC(KEEPER_METRIC_RESENT, "keeper_resent_total", "counter", "Messages sent again for a gateway.")
METRIC(KEEPER_METRIC_PUT_OFF, "keeper_put_off_total", "counter",
       "Times Redis refused a script for a coupon, which was put off.")
METRIC(KEEPER_METRIC_UNEQUAL, "keeper_coupons_unequal", "gauge",
       "Coupons whose numbers in Redis and PostgreSQL do not add up (P4), in three looks or more.")
METRIC(KEEPER_METRIC_IN_FLIGHT, "keeper_receives_in_flight", "gauge",
       "Receives accepted and without an outcome in PostgreSQL, of all watched coupons.")
METRIC(KEEPER_METRIC_RESERVED, "keeper_receives_reserved", "gauge",
       "Of those, receives of older generations.")
METRIC(KEEPER_METRIC_UNRELEASED, "keeper_coupons_unreleased", "gauge",
       "Coupons with rejected receives that were not given back in Redis yet.")
METRIC(KEEPER_METRIC_LOST, "keeper_stock_lost", "gauge",
       "Stock that Redis was given and PostgreSQL does not have, of all watched coupons.")
METRIC(KEEPER_METRIC_OUTBOX, "keeper_outbox_messages", "gauge",
       "Messages in the outboxes, of all watched coupons.")
METRIC(KEEPER_METRIC_OUTBOX_AGE, "keeper_outbox_age_milliseconds", "gauge",
       "Age of the oldest message that was found in an outbox.")
