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

#include "common/message/message.h"
#include "common/message/receive.h"
#include "coupon/copies.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * A batch on its way to its queue: what one script call accepted, which the outbox has too until
 * its receives are settled, or uses that arrived together. It has one owner at a time:
 *
 *	admission, use_requests ──▶ publisher ──(confirmed)──▶ event loop: frees it
 *
 * Batches that wait together go in one message, a packet.
 */

/* Which of them go in one message. */
enum batch_way {
	BATCH_RECEIVES,
	BATCH_AWAITED, /* receives: a client waits for ack=issued or ack=queued */
	BATCH_USES,    /* common/message/use.h */
	BATCH_WAYS
};

struct batch {
	STAILQ_ENTRY(batch) next;
	struct ulid ulid;
	enum batch_way way;
	int64_t coupon;    /* the receives' */
	size_t receives;   /* how many it accepted, or names */
	int wants_outcome; /* a client waits for it: the worker sends it back */
	struct copy copy;  /* the event loop's: receives that are not confirmed */
	size_t body_len;
	char body[]; /* the message, byte for byte as in the outbox */
};

STAILQ_HEAD(batch_list, batch);

void batch_list_free(struct batch_list *list); /* frees every batch in it */

/*
 * What one AMQP message carries: a batch, or several of one way that waited together (message.h).
 * It has room for 256 of their receives, as a single batch has, so that a worker's prefetch bounds
 * what it holds.
 */
struct packet {
	struct batch_list batches; /* at least one; its first names the message */
	size_t batches_n;
	size_t receives;
	size_t bytes;      /* the size of the body */
	int wants_outcome; /* one batch at least does */
};

/* Takes batches from the head of the list, as many as fit. The list is not empty. */
struct packet *packet_take(struct batch_list *pending);
/* Appends its batches to the list, and frees it. */
void packet_open(struct packet *packet, struct batch_list *batches);

/* The body: lent by the packet, or written to `buffer`. Its length is `bytes`. */
char *packet_body(struct packet *packet, char buffer[PACKED_BYTES_MAX]);

/*
 * How many receives come, to tell whether there is so much of one way that the others do well to
 * gather: each message, transaction and script of theirs costs about the same with one request in
 * it or with many.
 */
struct batch_rate {
	int64_t since_ms; /* when the last BATCH_RATE_MS began */
	size_t receives;  /* since then; the owner adds what comes */
	int was_full;     /* in the BATCH_RATE_MS before */
};

#define BATCH_RATE_FULL 1000 /* receives in BATCH_RATE_MS */
#define BATCH_RATE_MS 100

int batch_rate_is_full(struct batch_rate *rate, int64_t now_ms); /* now */

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
