/*
 * A batch on its way to the queue: what one script call accepted. It is owned by one holder at a
 * time, and moves
 *
 *	admission ──▶ publisher ──(confirmed)──▶ event loop, which removes the outbox entry and frees it
 */
#ifndef GATEWAY_ADMIT_BATCH_H
#define GATEWAY_ADMIT_BATCH_H

#include "common/ulid.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct batch {
	STAILQ_ENTRY(batch) next;
	struct ulid ulid;
	int64_t coupon;
	size_t receives;   /* how many it accepted */
	int wants_outcome; /* a client waits for ack=issued: ask the worker to reply */
	size_t body_len;
	char body[]; /* the message, byte for byte as the outbox has it */
};

STAILQ_HEAD(batch_list, batch);

void batch_list_free(struct batch_list *list); /* and every batch in it */

#endif
