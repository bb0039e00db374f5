/*
 * Decides which connection is served next: connections with input take turns, each for a small
 * cost, so that one that sends much keeps the others waiting for a moment only. One thread, no I/O.
 *
 * One that had nothing to do comes before those that have been served and have more (as in
 * FQ-CoDel, RFC 8290): it need not wait for the round of the busy ones. After its turn it is
 * behind them until the round has passed it, so that it cannot come first again and again.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

/* About microseconds; op_table.h has the cost of each operation. */
#define TURN_COST 16      /* of one connection, in one turn */
#define TURNS_COST 2000   /* of all, before the event loop looks at its sockets again */
#define TURN_COST_LEAST 1 /* of a turn in which there was nothing to do */

struct turn;

/* Serves until turn_is_over(); returns whether there is more to do. May leave or free the turn. */
typedef int turn_serve_fn(struct turn *turn);

/* Embedded by its owner. */
struct turn {
	TAILQ_ENTRY(turn) next;
	struct turns *turns;
	turn_serve_fn *serve;
	struct turn_queue *queue; /* NULL: it has nothing to do */
	int64_t credit;
	int64_t wanted; /* it is not served before it has so much */
	void *owner;
};

TAILQ_HEAD(turn_queue, turn);

struct turns {
	struct turn_queue fresh;
	struct turn_queue busy;
	struct turn *serving; /* NULL: none, or it has left */
	int64_t spent;        /* by all, ever */
	void (*wake)(void *context);
	void *context;
};

/* `wake` is called when there is something to do after there was nothing. */
void turns_init(struct turns *turns, void (*wake)(void *context), void *context);
/* Serves for TURNS_COST; returns whether there is more to do. */
int turns_run(struct turns *turns);

/* It has something to do. */
void turn_enter(struct turn *turn);
/* It is served no more, until it enters again. */
void turn_leave(struct turn *turn);
/* For who serves: something was done on behalf of the turn, and whether that was enough. */
void turns_spend(struct turns *turns, int64_t cost);
int turn_is_over(const struct turn *turn);
/*
 * Whether the turn is enough for what costs so much. If not, it is over, and the next one comes
 * after as many rounds as it costs: what is dear is paid for in advance, else the first of many
 * connections would keep the others waiting for the sum.
 */
int turn_affords(struct turn *turn, int64_t cost);
