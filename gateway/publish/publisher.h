/*
 * The publisher: a thread that owns the AMQP connection, because a publish can block while the
 * broker does not read. It publishes every batch until RabbitMQ has confirmed it, over new
 * connections where needed, and receives the outcomes that workers send back (RabbitMQ's direct
 * reply-to).
 *
 *	event loop                                          publisher thread
 *	  publisher_submit ──▶ inbox ──▶ pending ──▶ confirm window ──┐
 *	  publisher_collect ◀── confirmed, outcomes ◀────────────────┘
 *
 * inbox, confirmed and outcomes are the only shared lists, under one mutex; an eventfd wakes each
 * side. All functions are for the event loop's thread.
 */
#pragma once

#include "gateway/publish/batch.h"
#include "gateway/publish/waiters.h"

struct publisher;

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
		       struct outcome_message_list *outcomes);

/* Writes the reason why it is not ready, or an empty string when it is. */
void publisher_trouble(struct publisher *publisher, char *text, size_t size);
