/*
 * Assembles what arrives on a channel from its frames: a message consists of a method, a header and
 * pieces of a body; everything else is one method. Pure: no I/O, one thread.
 */
#ifndef COMMON_RABBIT_ARRIVAL_H
#define COMMON_RABBIT_ARRIVAL_H

#include "common/rabbit/amqp.h"
#include "common/rabbit/envelope.h"

#include <stdint.h>

enum arrival_kind {
	ARRIVAL_NONE, /* nothing yet, or nothing of interest */
	ARRIVAL_DELIVERY,
	ARRIVAL_RETURN,
	ARRIVAL_ACK,
	ARRIVAL_NACK,
	ARRIVAL_QUEUE, /* the length of a queue */
	ARRIVAL_BLOCKED,
	ARRIVAL_UNBLOCKED,
	ARRIVAL_END /* the connection is of no further use */
};

#define ARRIVAL_NAME_SIZE 256 /* a short string of AMQP, with its end */

struct arrival {
	enum arrival_kind kind;
	uint64_t tag;                 /* of a delivery, an ack or a nack */
	int multiple;                 /* of an ack or a nack */
	char name[ARRIVAL_NAME_SIZE]; /* of a queue, or of the consumer of a delivery */
	uint32_t ready;               /* of a queue: messages that wait for a consumer */
	struct envelope *envelope;    /* of a delivery or a return; the caller frees it */
	const char *why;              /* of the end */
};

/* A message whose frames are arriving. All zero at first. */
struct arriving {
	struct arrival message;    /* ARRIVAL_NONE: none */
	struct envelope *envelope; /* from the header on */
	uint64_t body_left;
};

/* The next frame of the channel. */
struct arrival arriving_add(struct arriving *arriving, const amqp_frame_t *frame);
/* Forgets an incomplete message. */
void arriving_reset(struct arriving *arriving);

#endif
