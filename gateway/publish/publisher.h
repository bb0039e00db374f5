/*
 * The publisher: a thread that owns the AMQP connection, because a publish can block while the
 * broker does not read. It publishes every batch until RabbitMQ has confirmed it, over new
 * connections where needed, and receives the replies of workers (RabbitMQ's direct reply-to).
 *
 *	event loop                                          publisher thread
 *	  publisher_submit ──▶ inbox ──▶ pending ──▶ confirm window ──┐
 *	  publisher_collect ◀── confirmed, replies ◀─────────────────┘
 *
 * inbox, confirmed and replies are the only shared lists, under one mutex; an eventfd wakes each
 * side. All functions are for the event loop's thread.
 */
#pragma once

#include "gateway/publish/batch.h"

struct publisher;

/* A reply of a worker (common/message/use.h), as it arrived. */
struct reply_message {
	STAILQ_ENTRY(reply_message) next;
	size_t len;
	char body[];
};

STAILQ_HEAD(reply_message_list, reply_message);

/*
 * Starts the thread, which connects and reconnects. `wake_fd` becomes readable when there is
 * something to collect. The URL must outlive it.
 */
struct publisher *publisher_new(const char *amqp_url, int *wake_fd);
/*
 * Stops the thread and frees; batches that are not confirmed are dropped here and stay in their
 * outbox. `abandon`: does not wait for the broker.
 */
void publisher_free(struct publisher *publisher, int abandon);

/* The id of the Redis that decides, which the messages carry from now on. */
void publisher_installation(struct publisher *publisher, const char *installation);

void publisher_submit(struct publisher *publisher, struct batch *batch); /* takes the batch */

/* Appends what has arrived to the lists; the caller owns it then. */
void publisher_collect(struct publisher *publisher, struct batch_list *confirmed,
		       struct reply_message_list *replies);

/* Writes the reason why it is not ready, or an empty string when it is. */
void publisher_trouble(struct publisher *publisher, char *text, size_t size);
