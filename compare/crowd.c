#include "compare/crowd.h"

#include "common/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#define STACK_BYTES (256 * 1024) /* of a thread */

struct crowd {
	struct market *market;
	const struct way *way;
	struct load *load;
	pthread_barrier_t start;
	/* connections that no client uses, and the clients that wait for one, in their order */
	pthread_mutex_t mutex;
	struct client **idle;
	int idle_n;
	STAILQ_HEAD(, waiter) waiters;
};

struct waiter {
	STAILQ_ENTRY(waiter) next;
	pthread_cond_t is_served;
	struct client *client;
};

/* A thread with a connection of its own. */
struct part {
	struct crowd *crowd;
	struct client *client;
	void (*run)(struct client *client, struct load *load);
	pthread_t thread;
};

static struct client *idle_take(struct crowd *crowd)
{
	struct waiter me = { .is_served = PTHREAD_COND_INITIALIZER };

	pthread_mutex_lock(&crowd->mutex);
	if (crowd->idle_n > 0)
		me.client = crowd->idle[--crowd->idle_n];
	else
		STAILQ_INSERT_TAIL(&crowd->waiters, &me, next);
	while (!me.client)
		pthread_cond_wait(&me.is_served, &crowd->mutex);
	pthread_mutex_unlock(&crowd->mutex);
	return me.client;
}

static void idle_return(struct crowd *crowd, struct client *client)
{
	struct waiter *first;

	pthread_mutex_lock(&crowd->mutex);
	first = STAILQ_FIRST(&crowd->waiters);
	if (first) {
		STAILQ_REMOVE_HEAD(&crowd->waiters, next);
		first->client = client;
		pthread_cond_signal(&first->is_served);
	} else {
		crowd->idle[crowd->idle_n++] = client;
	}
	pthread_mutex_unlock(&crowd->mutex);
}

/* One client: it waits for a connection, asks, waits for the answer. */
static void *client_run(void *opaque)
{
	struct crowd *crowd = opaque;
	const struct request *request;
	int number;

	pthread_barrier_wait(&crowd->start);
	while ((request = load_next(crowd->load, &number))) {
		struct client *client = idle_take(crowd);
		enum outcome outcome = crowd->way->buy(client, request);

		idle_return(crowd, client);
		if (outcome == SOLD && !crowd->way->work)
			load_committed(crowd->load);
		load_answer(crowd->load, number, outcome);
	}
	return NULL;
}

static void *part_run(void *opaque)
{
	struct part *part = opaque;

	if (part->crowd->way->open)
		part->crowd->way->open(part->client);
	pthread_barrier_wait(&part->crowd->start);
	part->run(part->client, part->crowd->load);
	return NULL;
}

static void thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	pthread_attr_t attr;

	check(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, STACK_BYTES) == 0);
	if (pthread_create(thread, &attr, run, argument))
		client_fail("system", "start a thread", "too many");
	pthread_attr_destroy(&attr);
}

/* As many parts as there are connections, or one; none where the way has no such function. */
static int parts_start(struct crowd *crowd, struct part *parts, int n,
		       void (*run)(struct client *client, struct load *load))
{
	if (!run)
		return 0;
	for (int i = 0; i < n; i++) {
		parts[i] = (struct part){ .crowd = crowd,
					  .client = client_new(crowd->market),
					  .run = run };
		thread_start(&parts[i].thread, part_run, &parts[i]);
	}
	return n;
}

static void client_end(struct client *client, struct crowd_result *result)
{
	result->attempts += client->attempts;
	result->attempts_failed += client->attempts_failed;
	client_free(client);
}

/* Every client and every part; returns when all have ended. */
static void crowd_start(struct crowd *crowd, struct crowd_result *result)
{
	const struct way *way = crowd->way;
	int clients = way->buy ? crowd->market->clients : 0, n = crowd->market->connections,
	    others = (way->serve ? n : 0) + (way->work ? n : 0) + (way->watch ? 1 : 0), started;
	pthread_t *threads = calloc((size_t)clients + 1, sizeof(*threads));
	struct part *parts = calloc((size_t)others + 1, sizeof(*parts));

	check(threads && parts);
	check(pthread_barrier_init(&crowd->start, NULL, (unsigned)(clients + others + 1)) == 0);
	for (int i = 0; i < clients; i++)
		thread_start(&threads[i], client_run, crowd);
	started = parts_start(crowd, parts, n, way->serve);
	started += parts_start(crowd, parts + started, n, way->work);
	started += parts_start(crowd, parts + started, 1, way->watch);
	check(started == others);
	pthread_barrier_wait(&crowd->start);
	for (int i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < others; i++) {
		pthread_join(parts[i].thread, NULL);
		client_end(parts[i].client, result);
	}
	pthread_barrier_destroy(&crowd->start);
	free(threads);
	free(parts);
}

/*
 * Each connection sells one piece of an item that is not judged, so that it is open, and its
 * statements are prepared, before the clock runs.
 */
static void pool_open(struct crowd *crowd)
{
	struct market *market = crowd->market;

	crowd->idle = calloc((size_t)market->connections, sizeof(*crowd->idle));
	check(crowd->idle != NULL);
	for (int i = 0; i < market->connections && crowd->way->buy; i++) {
		struct client *client = client_new(market);

		client->random = market->seed + (unsigned)i;
		crowd->way->buy(client,
				&(struct request){ .user = i + 1, .item = market->items + 1 });
		client->attempts = client->attempts_failed = 0;
		crowd->idle[crowd->idle_n++] = client;
	}
}

void crowd_run(struct market *market, const struct way *way, struct load *load,
	       struct crowd_result *result)
{
	struct crowd crowd = {
		.market = market, .way = way, .load = load, .mutex = PTHREAD_MUTEX_INITIALIZER
	};

	STAILQ_INIT(&crowd.waiters);
	*result = (struct crowd_result){ 0 };
	pool_open(&crowd);
	crowd_start(&crowd, result);
	while (crowd.idle_n > 0)
		client_end(crowd.idle[--crowd.idle_n], result);
	free(crowd.idle);
}
