#include "gateway/listen/turns.h"

#include "common/check.h"

#include <stddef.h>

void turns_init(struct turns *turns, void (*wake)(void *context), void *context)
{
	*turns = (struct turns){ .wake = wake, .context = context };
	TAILQ_INIT(&turns->fresh);
	TAILQ_INIT(&turns->busy);
}

static int is_empty(const struct turns *turns)
{
	return TAILQ_EMPTY(&turns->fresh) && TAILQ_EMPTY(&turns->busy);
}

static void queue_remove(struct turn *turn)
{
	TAILQ_REMOVE(turn->queue, turn, next);
	turn->queue = NULL;
}

void turn_enter(struct turn *turn)
{
	struct turns *turns = turn->turns;
	int was_empty = is_empty(turns);

	if (turn->queue)
		return;
	turn->queue = &turns->fresh;
	TAILQ_INSERT_TAIL(turn->queue, turn, next);
	if (was_empty && !turns->serving)
		turns->wake(turns->context);
}

void turn_leave(struct turn *turn)
{
	if (turn->queue)
		queue_remove(turn);
	if (turn->turns->serving == turn)
		turn->turns->serving = NULL;
}

void turns_spend(struct turns *turns, int64_t cost)
{
	turns->spent += cost;
	if (turns->serving)
		turns->serving->credit -= cost;
}

int turn_is_over(const struct turn *turn)
{
	return turn->credit <= 0 || turn->credit < turn->wanted;
}

int turn_affords(struct turn *turn, int64_t cost)
{
	turn->wanted = cost > TURN_COST && cost > turn->credit ? cost : 0;
	return turn->wanted == 0;
}

int turns_run(struct turns *turns)
{
	int64_t until = turns->spent + TURNS_COST, credit_max;
	struct turn *turn;
	int was_fresh, more;

	check(!turns->serving);
	while (!is_empty(turns) && turns->spent < until) {
		was_fresh = !TAILQ_EMPTY(&turns->fresh);
		turn = TAILQ_FIRST(was_fresh ? &turns->fresh : &turns->busy);
		queue_remove(turn);

		/* Credit that was overdrawn is owed: expensive requests get fewer turns. */
		credit_max = turn->wanted > TURN_COST ? turn->wanted : TURN_COST;
		turn->credit += TURN_COST;
		if (turn->credit > credit_max)
			turn->credit = credit_max;
		turns->serving = turn;
		turns->spent += TURN_COST_LEAST;
		more = turn_is_over(turn) || turn->serve(turn);
		if (turns->serving != turn) /* it has left, and may be gone */
			continue;
		turns->serving = NULL;
		if (turn->queue) { /* it entered while it was served */
			queue_remove(turn);
			more = 1;
		}
		if (more || (was_fresh && !TAILQ_EMPTY(&turns->busy))) {
			turn->queue = &turns->busy;
			TAILQ_INSERT_TAIL(turn->queue, turn, next);
		}
	}
	return !is_empty(turns);
}
