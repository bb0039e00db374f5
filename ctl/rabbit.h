/* RabbitMQ for couponctl: looks at queues, and holds the messages of one queue. */
#pragma once

#include "common/rabbit/connection.h"

#include <stdint.h>

/* Connects; a failure ends the process. rabbit_connection_close() closes the connection. */
amqp_connection_state_t rabbit_open(const char *url);

/*
 * Returns 1 when the queue exists, with its numbers of ready messages and consumers; 0 when it does
 * not. A failure ends the process.
 */
int rabbit_queue_find(amqp_connection_state_t connection, const char *queue, int64_t *ready,
		      int64_t *consumers);

/* As rabbit_queue_find(), but -1 with `error` for a failure: amqp_destroy_connection() follows. */
int rabbit_queue_try(amqp_connection_state_t connection, const char *queue, int64_t *ready,
		     int64_t *consumers, char error[RABBIT_ERROR_SIZE]);

/*
 * The numbers of ready messages and consumers of the queues. AMQP does not report the messages that
 * workers hold unacked. The first look connects; rabbit_connection_close() follows the last one.
 */
struct broker { /* all zero but `url` */
	const char *url;
	amqp_connection_state_t connection; /* NULL: not connected */
	char error[RABBIT_ERROR_SIZE];      /* why it cannot be queried */
};

struct broker_look {
	int ok;            /* 0: it cannot be queried */
	int64_t ready;     /* in the receive and the parking queue; none where a queue is missing */
	int64_t consumers; /* of both: with none, no message is unacked */
	int64_t dead;      /* in the dead-letter queue */
};

void broker_look(struct broker *broker, struct broker_look *look);

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
#define HOLD_ROUND 128 /* messages sent between two waits for confirms */
/*
 * RabbitMQ puts returned messages behind those that were not taken: the order is kept only when all
 * were taken. With more than this keeping it would take too long.
 */
#define HOLD_ORDER_MAX 1000

struct hold {
	int64_t length; /* ready messages, when it was opened */
	int64_t held;   /* taken and not removed */
	int64_t moved;  /* sent, confirmed and removed so far */
	const char *queue;

	/* For the functions below alone. */
	const char *url, *unroutable;
	amqp_connection_state_t connection;
	int consumes;
	char *is_held;                   /* by delivery tag, which counts from 1 */
	uint64_t taken;                  /* the last tag */
	size_t size;                     /* of is_held */
	struct rabbit_publisher *sender; /* NULL: nothing was sent so far */
	struct hold_sent {               /* messages whose confirm is awaited */
		uint64_t tag;            /* of the held one; 0: there is none */
		int is_confirmed;
	} round[HOLD_ROUND];
	size_t round_n;
	const char *failure; /* of a message; NULL: none */
};

/*
 * `consumes`: as a consumer, which gets many messages ahead; otherwise one by one. `unroutable`:
 * what hold_confirm() says when no queue takes a message.
 */
struct hold *hold_open(const char *url, const char *queue, int consumes, const char *unroutable);
/* Returns when RabbitMQ has done the removals. */
void hold_close(struct hold *hold);

/*
 * Takes the next message, for amqp_destroy_message(). 1, or 0 when there is none; a consumer waits
 * so long for it.
 */
int hold_take(struct hold *hold, amqp_message_t *message, uint64_t *tag, int wait_us);
void hold_remove(struct hold *hold, uint64_t tag);

/* Connects for hold_send(), before something is changed that must not stay so without it. */
void hold_send_begin(struct hold *hold);
/* Sends a held message, or 0 in `tag`: another one. At most HOLD_ROUND until hold_confirm(). */
void hold_send(struct hold *hold, uint64_t tag, const char *exchange, const char *routing_key,
	       const amqp_basic_properties_t *properties, amqp_bytes_t body);
int hold_is_full(const struct hold *hold);
/*
 * Waits for the confirms, and removes what is confirmed. NULL, or why something was not; then
 * nothing more is to be sent.
 */
const char *hold_confirm(struct hold *hold);

/*
 * Takes up to `most` messages, at most a round, and sends each to a queue with all that it has but
 * what describes its delivery, and the user; a request to leave is only removed. Returns how many
 * it has taken, with `trouble` as of hold_confirm().
 */
int hold_copy_round(struct hold *hold, const char *queue, int64_t most, int wait_us,
		    const char **trouble);
