/*
 * Dead letters: what nobody can settle goes to the dead-letter exchange, with the reason. Only when
 * the broker has confirmed it is the delivery finished; until then it is tried again, later and
 * later.
 */
#ifndef WORKER_CONSUME_DEAD_LETTERS_H
#define WORKER_CONSUME_DEAD_LETTERS_H

#include "common/backoff.h"
#include "common/rabbit/publisher.h"
#include "worker/settle/settlement.h"

struct dead_letters {
	struct settlement *settlement;
	struct rabbit_publisher *publisher;
	struct backoff backoff;
	int64_t due_ms;    /* none is sent before */
	int64_t confirmed; /* counts */
};

/* Publishes what waits, as far as that is possible now. */
void dead_letters_send(struct dead_letters *letters, int64_t now_ms);
/* What became of one; a confirm_fn whose context is the struct. */
void dead_letters_done(void *letters, void *item, enum confirm_result result);
/* When dead_letters_send() wants to be called; INT64_MAX when there is nothing it could do. */
int64_t dead_letters_deadline_ms(const struct dead_letters *letters);

#endif
