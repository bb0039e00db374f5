/*
 * A batch on its way to the queue: what one script call accepted. The outbox has its message too,
 * until its receives are settled. It has one owner at a time:
 *
 *	admission ──▶ publisher ──(confirmed)──▶ event loop: frees it
 */
#ifndef GATEWAY_PUBLISH_BATCH_H
#define GATEWAY_PUBLISH_BATCH_H

#include "common/message/ulid.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/queue.h>

struct batch {
	STAILQ_ENTRY(batch) next;
	struct ulid ulid;
	int64_t coupon;
	size_t receives;   /* how many it accepted */
	int wants_outcome; /* a client waits for ack=issued: the worker sends the outcome back */
	int awaited;       /* a client waits for ack=issued or ack=queued */
	size_t body_len;
	char body[]; /* the message, byte for byte as in the outbox */
};

STAILQ_HEAD(batch_list, batch);

/* Frees every batch in it. */
static inline void batch_list_free(struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(batch);
	}
}

#endif
