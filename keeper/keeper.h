/*
 * The keeper: in one elected worker, a thread that opens and closes campaigns in Redis, verifies
 * them after a restart of Redis, sends orphaned messages again, and frees the slots of rejected
 * receives. In every other worker the same thread waits to be elected, and frees slots when it
 * is woken.
 */
#pragma once

#include "common/changes.h"
#include "common/program/config.h"

struct evbuffer;
struct keeper;

/* Ends the process if the settings of the keeper are wrong; before there are threads. */
void keeper_check(const struct config *config);
/* Starts the thread. `config` must outlive it. */
struct keeper *keeper_start(const struct config *config);
/* Stops the thread, which releases the lock, and waits for its end. */
void keeper_stop(struct keeper *keeper);
/* Wakes the thread to free the slots of rejected receives in Redis. Any thread; never waits. */
void keeper_wake(struct keeper *keeper);

/*
 * Has the thread read the copy of PostgreSQL's numbers in Redis soon; keeper_copy() returns it, and
 * when it was read (monotonic; 0: never). Any thread; neither waits.
 */
void keeper_copy_ask(struct keeper *keeper);
int64_t keeper_copy(struct changes *copy);
/* Has Redis follow the server of the changes, as changes_follow(), and then has the copy read. */
void keeper_follow_ask(struct keeper *keeper, const struct changes *changes, enum follow follow);

/* The state of the keeper's thread in this process; 0 while there is none. Any thread. */
struct keeper_state {
	int redis_up;
	int elected;
	enum relation relation;
	int recovers; /* RELATION_BEHIND: what is missing is brought back without an operator */
	int installations_n;             /* another number: PostgreSQL has got another id */
	struct postgres_server followed; /* as Redis last had it */
};
struct keeper_state keeper_state(void);
/* The metrics of the keeper, in the text exposition format 0.0.4. Any thread. */
void keeper_exposition(struct evbuffer *out);
