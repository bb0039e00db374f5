/*
 * What Redis has of each batch of a dead letter: the entry in its coupon's outbox, and the mark,
 * its id in the set of dead ones, with which the keeper does not send the entry again. A batch
 * whose coupon or id is unknown has neither. When Redis cannot be reached or refuses, the process
 * ends with one sentence.
 */
#ifndef CTL_DEAD_OUTBOX_H
#define CTL_DEAD_OUTBOX_H

#include "ctl/ctl.h"
#include "ctl/dead/letter.h"

struct redis_client;

struct dead_outbox {
	const struct ctl *ctl;
	struct redis_client *redis; /* NULL: not needed so far */
};

/* Connects, if Redis is needed for this letter. Before its change is announced or begun. */
void dead_outbox_open(struct dead_outbox *outbox, const struct dead_letter *letter);
void dead_outbox_close(struct dead_outbox *outbox);

/*
 * Removes the entries. One with another body than in the letter stays, and its mark is removed: it
 * is another message, which the keeper sends.
 */
void dead_outbox_remove(struct dead_outbox *outbox, const struct dead_letter *letter);
/* Removes the marks: should RabbitMQ lose the message, the keeper sends its batches again. */
void dead_outbox_unmark(struct dead_outbox *outbox, const struct dead_letter *letter);

#endif
