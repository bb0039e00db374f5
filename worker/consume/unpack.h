/*
 * Takes a message apart: adds each batch that it carries to the books as a delivery. What cannot be
 * read is to be dead-lettered: one batch, or the message as a whole.
 */
#ifndef WORKER_CONSUME_UNPACK_H
#define WORKER_CONSUME_UNPACK_H

#include "worker/consume/settlement.h"

struct unpack {
	struct settlement *settlement;
	struct json_arena *arena;
	/*
	 * Makes the envelope of a batch that is one of several in a message. The text is lent;
	 * `batch` is NULL when it cannot be read.
	 */
	void *(*part_new)(const void *whole, const char *text, size_t len,
			  const struct ulid *batch);
	void (*envelope_free)(void *envelope);
	struct message message; /* its own */
};

/* `how` as for settlement_add(); `body` belongs to `envelope`, which is taken over. */
void unpack_add(struct unpack *unpack, uint64_t tag, const char *body, size_t len, unsigned how,
		void *envelope);

#endif
