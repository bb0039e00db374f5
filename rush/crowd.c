#include "rush/crowd.h"

#include "common/array.h"
#include "common/message/answer.h"

#include <errno.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define SECOND_US 1000000

void rush_crowd_init(struct rush_crowd *crowd, struct rush_requests *requests)
{
	const struct rush_plan *plan = requests->plan;
	const struct rush_open_loop *open = &plan->open;
	int64_t last_us = open->duration_us + open->give_up_us;
	uint32_t slots_n = plan->connections_n, seconds_n;

	/* The last second in which anything can happen, and one for what is late. */
	for (uint32_t retry = 1; retry <= open->retries; retry++)
		last_us += open->give_up_us + rush_plan_pause_us(plan, retry);
	seconds_n = (uint32_t)(last_us / SECOND_US) + 2;
	*crowd = (struct rush_crowd){
		.requests = requests,
		.plan = plan,
		.slots = rush_array_new(slots_n, sizeof(*crowd->slots)),
		.free = rush_array_new(slots_n, sizeof(*crowd->free)),
		.oldest = NOBODY,
		.newest = NOBODY,
		.seconds = rush_array_new(seconds_n, sizeof(*crowd->seconds)),
		.seconds_n = seconds_n,
	};
	while (crowd->free_n < slots_n) {
		crowd->free[crowd->free_n] = slots_n - 1 - crowd->free_n;
		crowd->free_n++;
	}
	rush_arrivals_init(&crowd->arrivals, plan);
	crowd->arrival_us = rush_arrivals_next(&crowd->arrivals);
}

void rush_crowd_fini(struct rush_crowd *crowd)
{
	for (size_t i = 0; i <= RUSH_RETRIES_MAX; i++)
		free(crowd->again[i].list);
	free(crowd->slots);
	free(crowd->free);
	free(crowd->seconds);
}

static struct rush_second *second_at(struct rush_crowd *crowd, int64_t us)
{
	int64_t i = us / SECOND_US;

	return &crowd->seconds[i < crowd->seconds_n ? i : crowd->seconds_n - 1];
}

/* The attempt that somebody makes next, and when: 0 for a user who comes. -1: nobody. */
static int next_find(const struct rush_crowd *crowd, int64_t *due_us)
{
	int next = -1;

	*due_us = INT64_MAX;
	if (crowd->requests->next < crowd->plan->requests_n && !crowd->is_stopped) {
		*due_us = crowd->arrival_us;
		next = 0;
	}
	for (uint32_t attempt = 1; attempt <= crowd->plan->open.retries; attempt++) {
		const struct rush_presses *presses = &crowd->again[attempt];

		if (presses->first == presses->n || presses->list[presses->first].due_us >= *due_us)
			continue;
		*due_us = presses->list[presses->first].due_us;
		next = (int)attempt;
	}
	return next;
}

static void slot_free(struct rush_crowd *crowd, uint32_t i)
{
	const struct rush_slot *slot = &crowd->slots[i];

	if (slot->older == NOBODY)
		crowd->oldest = slot->newer;
	else
		crowd->slots[slot->older].newer = slot->newer;
	if (slot->newer == NOBODY)
		crowd->newest = slot->older;
	else
		crowd->slots[slot->newer].older = slot->older;
	crowd->free[crowd->free_n++] = i;
}

int rush_crowd_start(struct rush_crowd *crowd, int64_t now_us)
{
	struct rush_presses *again;
	struct rush_press press;
	uint32_t i, open_n;
	int64_t due_us;
	int attempt;

	while ((attempt = next_find(crowd, &due_us)) >= 0 && due_us <= now_us) {
		int is_late = now_us - due_us >= RUSH_START_LATE_US;

		if (!is_late && crowd->free_n == 0)
			return RUSH_NONE;
		if (attempt > 0) {
			again = &crowd->again[attempt];
			press = again->list[again->first++];
		} else {
			press = (struct rush_press){ .due_us = due_us, .end = RUSH_NOT_SENT };
			second_at(crowd, due_us)->offered++;
			press.user = rush_requests_send(crowd->requests, 0, due_us, now_us);
			crowd->arrival_us = rush_arrivals_next(&crowd->arrivals);
		}
		if (is_late) {
			rush_requests_end(crowd->requests, press.user, press.end);
			continue;
		}

		/* The user takes a slot, which is the newest of those that are in use. */
		i = crowd->free[--crowd->free_n];
		crowd->slots[i] = (struct rush_slot){ .user = press.user,
						      .attempt = (uint32_t)attempt,
						      .due_us = press.due_us,
						      .older = crowd->newest,
						      .newer = NOBODY };
		if (crowd->newest == NOBODY)
			crowd->oldest = i;
		else
			crowd->slots[crowd->newest].newer = i;
		crowd->newest = i;
		crowd->attempts++;
		crowd->started += attempt == 0;
		second_at(crowd, now_us)->attempts++;
		open_n = crowd->plan->connections_n - crowd->free_n;
		if (open_n > crowd->open_most)
			crowd->open_most = open_n;
		return (int)i;
	}
	return RUSH_NONE;
}

/* An attempt has no answer: its user presses again, or this is the end of its request. */
static void attempt_fail(struct rush_crowd *crowd, uint32_t i, enum rush_end end, int64_t now_us)
{
	const struct rush_slot *slot = &crowd->slots[i];
	uint32_t retry = slot->attempt + 1;
	struct rush_press press = { .user = slot->user, .end = (uint8_t)end };
	struct rush_presses *again;

	if (slot->is_sent)
		rush_requests_doubt(crowd->requests, slot->user);
	second_at(crowd, now_us)->unanswered++;
	slot_free(crowd, i);
	if (retry > crowd->plan->open.retries || crowd->is_stopped) {
		rush_requests_end(crowd->requests, press.user, end);
		return;
	}
	press.due_us = now_us + rush_plan_pause_us(crowd->plan, retry);

	/* What is in front of the first has been taken: each is moved once for each that was. */
	again = &crowd->again[retry];
	if (again->first > 0 && again->first >= again->n - again->first) {
		again->n -= again->first;
		memmove(again->list, again->list + again->first, again->n * sizeof(press));
		again->first = 0;
	}
	again->list = array_room(again->list, again->n, &again->size, sizeof(press));
	again->list[again->n++] = press;
}

static void give_up(struct rush_crowd *crowd, uint32_t i, int64_t now_us)
{
	int is_sent = crowd->slots[i].is_sent;

	if (is_sent)
		crowd->gave_up++;
	else
		crowd->gave_up_connecting++;
	attempt_fail(crowd, i, is_sent ? RUSH_LATE : RUSH_UNCONNECTED, now_us);
}

int rush_crowd_answer(struct rush_crowd *crowd, uint32_t slot, const struct client_reply *reply,
		      int64_t now_us)
{
	const struct rush_slot *one = &crowd->slots[slot];
	int is_decision = reply->code < answer_code(ANSWER_BUSY);
	struct client_reply answer = *reply;

	/* A connection that is refused has a reply before its request was read. */
	if (answer.request < 0 && !is_decision)
		answer.request = one->user;
	if (answer.request != one->user)
		return RUSH_WRONG;
	if (now_us - one->due_us >= crowd->plan->open.give_up_us) {
		give_up(crowd, slot, now_us);
		return RUSH_NONE;
	}
	if (rush_requests_answer(crowd->requests, &answer, now_us) < 0)
		return RUSH_WRONG;
	crowd->answered_at[one->attempt]++;
	crowd->good += is_decision;
	if (is_decision)
		second_at(crowd, now_us)->good++;
	else
		second_at(crowd, now_us)->refused++;
	slot_free(crowd, slot);
	return 0;
}

void rush_crowd_lost(struct rush_crowd *crowd, uint32_t slot, int error, int64_t now_us)
{
	int is_sent = crowd->slots[slot].is_sent;

	if (is_sent)
		crowd->lost++;
	else if (error == EADDRNOTAVAIL || error == EMFILE || error == ENFILE || error == ENOBUFS ||
		 error == ENOMEM)
		crowd->no_room++;
	else
		crowd->refused++;
	attempt_fail(crowd, slot, is_sent ? RUSH_LOST : RUSH_UNCONNECTED, now_us);
}

/*
 * Looks at the oldest slot alone: users start in the order in which they are due, so its user was
 * due first.
 */
int rush_crowd_expire(struct rush_crowd *crowd, int64_t now_us)
{
	uint32_t i = crowd->oldest;

	if (i == NOBODY || now_us - crowd->slots[i].due_us < crowd->plan->open.give_up_us)
		return RUSH_NONE;
	give_up(crowd, i, now_us);
	return (int)i;
}

void rush_crowd_stop(struct rush_crowd *crowd)
{
	crowd->is_stopped = 1;
	for (uint32_t attempt = 1; attempt <= crowd->plan->open.retries; attempt++) {
		struct rush_presses *presses = &crowd->again[attempt];

		for (; presses->first < presses->n; presses->first++)
			rush_requests_end(crowd->requests, presses->list[presses->first].user,
					  presses->list[presses->first].end);
	}
}

int rush_crowd_is_over(const struct rush_crowd *crowd)
{
	return rush_crowd_wake_us(crowd) == INT64_MAX;
}

int64_t rush_crowd_wake_us(const struct rush_crowd *crowd)
{
	int64_t wake_us, expire_us;

	if (next_find(crowd, &wake_us) >= 0 && crowd->free_n == 0)
		wake_us += RUSH_START_LATE_US; /* nobody can start before another one ends */
	if (crowd->oldest == NOBODY)
		return wake_us;
	expire_us = crowd->slots[crowd->oldest].due_us + crowd->plan->open.give_up_us;
	return expire_us < wake_us ? expire_us : wake_us;
}
