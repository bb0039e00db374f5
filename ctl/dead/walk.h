/* Goes through the dead-letter queue from its oldest message, and chooses messages. */
#ifndef CTL_DEAD_WALK_H
#define CTL_DEAD_WALK_H

#include "ctl/ctl.h"
#include "ctl/dead/letter.h"
#include "ctl/rabbit.h"

/* Chooses the messages that match all of these. */
struct dead_choice {
	int64_t number;        /* 0: any */
	char batch[ULID_SIZE]; /* "": any */
	int64_t first;         /* at most so many messages */
};

/* From the argument: a number or a batch. An invalid one ends the process. */
void dead_choice_read(struct dead_choice *choice, const struct ctl *ctl);
/* From the argument, --all or --limit. Exactly one must be given. */
void dead_choice_read_many(struct dead_choice *choice, const struct ctl *ctl);

struct dead_walk {
	struct hold *hold;
	struct dead_choice choice;
	struct json_arena *arena;
	int64_t seen;            /* messages taken so far */
	int64_t chosen;          /* of these */
	int64_t deliveries_most; /* the highest delivery count of the messages taken */
	const char *url;
	int show_progress;
};

void dead_walk_begin(struct dead_walk *walk, const struct ctl *ctl);
/*
 * Messages that were not removed return to the queue. Each look is a delivery of every message, and
 * RabbitMQ drops a message at the delivery limit that a policy may set. Before that all are
 * published to the queue again, in their order, with a count of 0. After a failure of that a
 * message may be in the queue twice.
 */
void dead_walk_end(struct dead_walk *walk);

/*
 * Takes messages up to the next chosen one. 1: the letter is the caller's until dead_letter_fini();
 * 0: there is none. The walk ends with the last message that was in the queue at the start, so a
 * message that is dead-lettered again is not taken again.
 */
int dead_walk_next(struct dead_walk *walk, struct dead_letter *letter);

/* Ends the process when a message that was chosen by number or batch does not exist. */
void dead_walk_check_found(const struct dead_walk *walk);

#endif
