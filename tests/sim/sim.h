/*
 * The base of a simulation: a virtual clock, one queue of events ordered by time, and one seeded
 * generator for every choice. The same seed gives the same run, event by event.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EVENTS_MAX 65536

/* Places where a fault may occur, each counted, so that a sweep can select the N-th. */
enum fault {
	FAULT_SEND,         /* a call cannot be sent */
	FAULT_NOT_RUN,      /* Redis refuses to run it */
	FAULT_REPLY_LOST,   /* it ran, and the connection broke */
	FAULT_SLOW,         /* it runs after the gateway has given up */
	FAULT_NACK,         /* the broker refuses a message */
	FAULT_RETURN,       /* no queue takes it */
	FAULT_CONFIRM_LOST, /* the broker accepted it, and the connection broke */
	FAULT_DUPLICATE,    /* a message is queued twice */
	FAULT_ACK_LOST,     /* a worker's connection breaks at an ack */
	FAULT_SETTLE,       /* a transaction fails */
	FAULT_LOCK,         /* another session locks a coupon for some time */
	FAULT_COMMIT_LOST,  /* it is committed, and the connection broke */
	FAULT_LOOKUP,       /* a look-up fails */
	FAULT_OUTCOME_LOST, /* a worker's reply does not reach the gateway */
	FAULT_DEAD,         /* dead-lettering fails */
	FAULT_REMOVAL,      /* a settled message is not removed from the outbox */
	FAULT_COUNT
};

static const char *const fault_names[FAULT_COUNT] = {
	"send",         "not_run",      "reply_lost", "slow",    "nack", "return",
	"confirm_lost", "duplicate",    "ack_lost",   "settle",  "lock", "commit_lost",
	"lookup",       "outcome_lost", "dead",       "removal",
};

/* A body is no string, with a NUL at its end. To be freed. */
static inline char *bytes_copy(const char *bytes, size_t len)
{
	char *copy = malloc(len);

	assert_non_null(copy);
	return memcpy(copy, bytes, len);
}

typedef void event_fn(void *context, uint64_t a, uint64_t b);

struct event {
	int64_t at_ms;
	uint64_t order; /* events at the same time run in the order of their creation */
	event_fn *run;
	void *context;
	uint64_t a, b;
};

static struct {
	uint64_t seed, random;
	int64_t now_ms;
	uint64_t step;
	const char *name; /* of the swept fault, for messages; NULL: none is */
	struct event heap[EVENTS_MAX];
	size_t heap_n;
	uint64_t order;
	int faults_on;
	int rates[FAULT_COUNT]; /* per mille */
	int counts[FAULT_COUNT];
	int sweep; /* a fault + 1, 0: none */
	int sweep_at;
	int sweep_for_ever;
} sim;

#define sim_fail(...)                                                               \
	do {                                                                        \
		fprintf(stderr, "SEED=%llu RUNS=1, step %llu at %lld ms %s: ",      \
			(unsigned long long)sim.seed, (unsigned long long)sim.step, \
			(long long)sim.now_ms, sim.name ? sim.name : "");           \
		fprintf(stderr, __VA_ARGS__);                                       \
		fputc('\n', stderr);                                                \
		fail();                                                             \
	} while (0)

#define sim_check(condition, ...)              \
	do {                                   \
		if (!(condition))              \
			sim_fail(__VA_ARGS__); \
	} while (0)

static uint64_t sim_random(void)
{
	uint64_t z = sim.random += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* From `least` to `most`, both included. */
static int64_t sim_between(int64_t least, int64_t most)
{
	return least + (int64_t)(sim_random() % (uint64_t)(most - least + 1));
}

static int sim_chance(int per_mille)
{
	return sim_between(0, 999) < per_mille;
}

static int fault(enum fault kind)
{
	if (!sim.faults_on)
		return 0;
	sim.counts[kind]++;
	if (!sim.sweep)
		return sim_chance(sim.rates[kind]);
	if (sim.sweep != (int)kind + 1)
		return 0;
	return sim.sweep_for_ever ? sim.counts[kind] >= sim.sweep_at
				  : sim.counts[kind] == sim.sweep_at;
}

static int event_before(const struct event *a, const struct event *b)
{
	return a->at_ms < b->at_ms || (a->at_ms == b->at_ms && a->order < b->order);
}

static void event_swap(size_t i, size_t j)
{
	struct event event = sim.heap[i];

	sim.heap[i] = sim.heap[j];
	sim.heap[j] = event;
}

static void event_at(int64_t at_ms, event_fn *run, void *context, uint64_t a, uint64_t b)
{
	size_t i = sim.heap_n++;

	assert_true(sim.heap_n < EVENTS_MAX);
	sim.heap[i] = (struct event){ at_ms, sim.order++, run, context, a, b };
	for (; i > 0 && event_before(&sim.heap[i], &sim.heap[(i - 1) / 2]); i = (i - 1) / 2)
		event_swap(i, (i - 1) / 2);
}

/* In `least_ms` to `most_ms` from now. */
static void event_in(int64_t least_ms, int64_t most_ms, event_fn *run, void *context, uint64_t a,
		     uint64_t b)
{
	event_at(sim.now_ms + sim_between(least_ms, most_ms), run, context, a, b);
}

static struct event event_take(void)
{
	struct event event = sim.heap[0];
	size_t i = 0;

	sim.heap[0] = sim.heap[--sim.heap_n];
	for (;;) {
		size_t least = i, child = 2 * i + 1;

		for (size_t k = child; k < child + 2 && k < sim.heap_n; k++)
			if (event_before(&sim.heap[k], &sim.heap[least]))
				least = k;
		if (least == i)
			return event;
		event_swap(i, least);
		i = least;
	}
}

/* A time for an event of an ordered stream: not before that of the previous event. */
static int64_t line_time(int64_t *busy_until_ms, int64_t least_ms, int64_t most_ms)
{
	int64_t at_ms = sim.now_ms + sim_between(least_ms, most_ms);

	if (at_ms < *busy_until_ms)
		at_ms = *busy_until_ms;
	return *busy_until_ms = at_ms;
}
