/* RabbitMQ as couponctl uses it: looks at queues, and holds the messages of one. */
#ifndef CTL_RABBIT_H
#define CTL_RABBIT_H

#include "common/rabbit/connection.h"

#include <stdint.h>

/* Connects; what fails ends the process. To be closed with rabbit_connection_close(). */
amqp_connection_state_t rabbit_open(const char *url);

/*
 * 1 when the queue exists, with its numbers of ready messages and consumers; 0: it does not. What
 * fails ends the process.
 */
int rabbit_queue_find(amqp_connection_state_t connection, const char *queue, int64_t *ready,
		      int64_t *consumers);

/*
 * The numbers of ready messages and consumers of the queues. AMQP does not report the messages that
 * workers hold unacked. Connects at the first look.
 */
struct broker;

struct broker_look {
	int ok;            /* 0: it cannot be queried; broker_error() has the reason */
	int64_t ready;     /* in the receive and the parking queue; none where a queue is missing */
	int64_t consumers; /* of both: with none, no message is unacked */
	int64_t dead;      /* in the dead-letter queue */
};

struct broker *broker_new(const char *url);
void broker_free(struct broker *broker);
void broker_look(struct broker *broker, struct broker_look *look);
const char *broker_error(const struct broker *broker);

/*
 * Messages of a queue that are held, un-acked, while it is decided what becomes of each:
 *
 *	queue ──take──▶ held ──send, mandatory──▶ another queue
 *	  ▲              │ ◀─────── confirm ─────────┘
 *	  └─── remove ───┘
 *
 * One that is sent elsewhere is removed only after RabbitMQ has confirmed the copy. After an
 * interruption in between it is in both queues, never in neither; settling it twice changes
 * nothing. What is not removed returns when the hold is closed or the process ends.
 *
 * Two connections: one takes messages, which may block, the other sends. What fails ends the
 * process with a sentence, except in hold_confirm().
 */
struct hold;

#define HOLD_ROUND 128 /* messages sent between two waits for confirms */
/*
 * RabbitMQ puts returned messages behind those that were not taken: the order is kept only when all
 * were taken. With more than this keeping it would take too long.
 */
#define HOLD_ORDER_MAX 1000

/*
 * `consumes`: as a consumer, which gets many messages ahead; otherwise one by one. `unroutable`:
 * what hold_confirm() says when no queue takes a message.
 */
struct hold *hold_open(const char *url, const char *queue, int consumes, const char *unroutable);
/* Returns when RabbitMQ has done the removals. */
void hold_close(struct hold *hold);

int64_t hold_length(const struct hold *hold); /* ready messages, when it was opened */
int64_t hold_count(const struct hold *hold);  /* taken and not removed */

/*
 * Takes the next message, for amqp_destroy_message(). 1, or 0 when there is none; a consumer waits
 * so long for it.
 */
int hold_take(struct hold *hold, amqp_message_t *message, uint64_t *tag, int wait_us);
void hold_remove(struct hold *hold, uint64_t tag);

/* Connects for hold_send(), before something is changed that must not stay so without it. */
void hold_send_begin(struct hold *hold);
/*
 * Sends a held message, or 0 in `tag`: another one. At most HOLD_ROUND until hold_confirm().
 * hold_copy() sends it to a queue with all that it has but what describes its delivery, and the
 * user.
 */
void hold_send(struct hold *hold, uint64_t tag, const char *exchange, const char *routing_key,
	       const amqp_basic_properties_t *properties, amqp_bytes_t body);
void hold_copy(struct hold *hold, uint64_t tag, const char *queue, const amqp_message_t *message);
int hold_is_full(const struct hold *hold);

/*
 * Waits for the confirms, and removes what is confirmed. NULL, or why something was not; then
 * nothing more is to be sent.
 */
const char *hold_confirm(struct hold *hold);
int64_t hold_moved(const struct hold *hold); /* sent, confirmed and removed so far */

#endif
