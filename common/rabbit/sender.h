/*
 * Publishes with confirms and blocks until they have arrived: for a command that does one thing at
 * a time. It declares nothing, connects once, and writes no log lines. One failure is final.
 */
#ifndef COMMON_RABBIT_SENDER_H
#define COMMON_RABBIT_SENDER_H

#include "common/rabbit/publisher.h"

struct rabbit_sender;

/* Connects. NULL with a sentence in `error`. `done` is called once for every item. */
struct rabbit_sender *rabbit_sender_open(const char *url, confirm_fn *done, void *context,
					 char error[RABBIT_ERROR_SIZE]);
/* Open items end as CONFIRM_LOST. */
void rabbit_sender_close(struct rabbit_sender *sender);

/* Persistent and mandatory. A failure is reported by the next rabbit_sender_wait(). */
void rabbit_sender_send(struct rabbit_sender *sender, const char *exchange, const char *routing_key,
			const amqp_basic_properties_t *properties, amqp_bytes_t body, void *item);

/*
 * Waits until every message is confirmed. NULL, or a sentence: the connection is lost, the broker
 * takes no messages, or not all are confirmed after `timeout_ms`. Call it once a minute at least:
 * heartbeats are sent inside it.
 */
const char *rabbit_sender_wait(struct rabbit_sender *sender, int64_t timeout_ms);

#endif
