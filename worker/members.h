/*
 * Asks the management API of RabbitMQ, in a thread of its own, on which nodes the queues have
 * members, and tells it by metrics, in the log and in the warnings of /readyz. Without
 * COUPON_RABBITMQ_API nothing is asked and nothing told.
 */
#pragma once

#include "common/program/config.h"

#include <cjson/cJSON.h>
#include <event2/buffer.h>

void members_start(const struct config *config);
void members_stop(void);

/* Appends a sentence for each queue that lacks members, or why they are not known. Any thread. */
void members_warnings(cJSON *array);

void members_prometheus(struct evbuffer *out); /* which nodes lead the queues. Any thread. */
