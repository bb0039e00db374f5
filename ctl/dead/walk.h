/*
 * Going through the dead-letter queue from its oldest message, and which of the messages a command
 * line means.
 */
#ifndef CTL_DEAD_WALK_H
#define CTL_DEAD_WALK_H

#include "ctl/ctl.h"
#include "ctl/dead/letter.h"
#include "ctl/dead/queue.h"

/* A message is meant when all of it that is given fits. */
struct dead_choice {
	int64_t number;        /* 0: any */
	char batch[ULID_SIZE]; /* "": any */
	int64_t first;         /* only the first so many */
};

/* From the argument: a number or a batch. A wrong one ends the process. */
void dead_choice_read(struct dead_choice *choice, const struct ctl *ctl);
/* From the argument, --all or --limit, of which one must be given. */
void dead_choice_read_many(struct dead_choice *choice, const struct ctl *ctl);

struct dead_walk {
	struct dead_queue *queue;
	struct dead_choice choice;
	struct json_arena *arena;
	int64_t seen;   /* messages looked at */
	int64_t chosen; /* of these */
	int show_progress;
};

void dead_walk_begin(struct dead_walk *walk, const struct ctl *ctl);
/* Closes the queue: what was not removed goes back. */
void dead_walk_end(struct dead_walk *walk);

enum dead_step { DEAD_STEP_END, DEAD_STEP_PASSED, DEAD_STEP_CHOSEN };

/*
 * Takes one message. DEAD_STEP_CHOSEN: the letter is the caller's until dead_letter_fini(). It ends
 * with the last message that was there at the beginning, so that what is dead-lettered again
 * meanwhile is not taken again.
 */
enum dead_step dead_walk_step(struct dead_walk *walk, struct dead_letter *letter);

/* Ends the process when a message that was named is not there. */
void dead_walk_check_found(const struct dead_walk *walk);

#endif
