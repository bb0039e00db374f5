/*
 * The keeper: in one elected worker, a thread that opens and closes campaigns in Redis, verifies
 * them after a restart of Redis, sends orphaned messages again, and gives back what rejected
 * receives hold. In every other worker the same thread waits to be elected, and gives back what it
 * is woken for.
 */
#ifndef KEEPER_KEEPER_H
#define KEEPER_KEEPER_H

#include "common/config.h"

struct evbuffer;
struct keeper;

/* Starts the thread. `config` must outlive it. */
struct keeper *keeper_start(const struct config *config);
/* Ends it (gives up the lock) and waits for that. */
void keeper_stop(struct keeper *keeper);
/* Receives were rejected: what they hold in Redis is given back soon. Any thread; never waits. */
void keeper_wake(struct keeper *keeper);

/* Of the keeper's thread in this process; 0 while there is none. Any thread. */
struct keeper_state {
	int redis_up;
	int elected;
};
struct keeper_state keeper_state(void);
/* The metrics of the keeper, in the text exposition format 0.0.4. Any thread. */
void keeper_exposition(struct evbuffer *out);

#endif
