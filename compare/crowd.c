#include "compare/crowd.h"

#include "common/check.h"

#include <pthread.h>
#include <stdlib.h>

#define STACK_BYTES (256 * 1024) /* of a thread */

struct crowd {
	struct market *market;
	const struct way *way;
	struct load *load;
	pthread_barrier_t barrier;
};

/* A thread with connections of its own: for clients, or behind them. */
struct part {
	struct crowd *crowd;
	struct client *client;
	pthread_t thread;
	/* of a thread for clients */
	int number;
	struct asked *asked;
	int n;
	/* of a thread behind them */
	void (*run)(struct client *client, struct load *load);
};

static void thread_start(struct part *part, void *(*run)(void *))
{
	pthread_attr_t attr;

	check(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, STACK_BYTES) == 0);
	if (pthread_create(&part->thread, &attr, run, part))
		client_fail("system", "start a thread", "too many");
	pthread_attr_destroy(&attr);
}

static enum outcome answer_get(struct part *part, struct asked *asked)
{
	const struct way *way = part->crowd->way;
	enum outcome outcome = way->ask ? way->answer(part->client, asked)
					: way->buy(part->client, asked->request);

	if (outcome == SOLD && !way->work && !way->watch)
		load_committed(part->crowd->load);
	return outcome;
}

static void flush(struct part *part)
{
	if (part->crowd->way->flush)
		part->crowd->way->flush(part->client);
}

/* What is sent is flushed by the quarter of the clients. */
static void clients_serve(struct part *part)
{
	const struct way *way = part->crowd->way;
	struct load *load = part->crowd->load;
	int unsent = 0, left = part->n;

	for (int i = 0; i < part->n && way->ask; i++)
		way->ask(part->client, &part->asked[i]);
	flush(part);
	for (int i = 0; left > 0; i = (i + 1) % part->n) {
		struct asked *asked = &part->asked[i];
		enum outcome outcome = answer_get(part, asked);

		load_answer(load, asked->number, outcome);
		asked->request = load_next(load, &asked->number);
		if (!asked->request)
			left--;
		else if (way->ask)
			way->ask(part->client, asked);
		unsent++;
		if (asked->request && unsent < part->n / 4)
			continue;
		flush(part);
		unsent = 0;
	}
}

/*
 * The connection sells one piece of an item that is not judged, so that it is open, and its
 * statements are prepared, before the clock runs.
 */
static void first_sell(struct part *part)
{
	const struct way *way = part->crowd->way;
	const struct request request = { .user = part->number,
					 .item = part->crowd->market->items + 1 };
	struct asked asked = { .request = &request };

	if (way->ask)
		way->ask(part->client, &asked);
	flush(part);
	if (way->ask)
		way->answer(part->client, &asked);
	else
		way->buy(part->client, &request);
	part->client->attempts = part->client->attempts_failed = 0;
}

static void *clients_run(void *opaque)
{
	struct part *part = opaque;
	pthread_barrier_t *barrier = &part->crowd->barrier;

	first_sell(part);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	clients_serve(part);
	return NULL;
}

static void *other_run(void *opaque)
{
	struct part *part = opaque;
	pthread_barrier_t *barrier = &part->crowd->barrier;

	pthread_barrier_wait(barrier);
	if (part->crowd->way->open)
		part->crowd->way->open(part->client);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	part->run(part->client, part->crowd->load);
	return NULL;
}

static struct part part_new(struct crowd *crowd)
{
	return (struct part){ .crowd = crowd, .client = client_new(crowd->market) };
}

static void connections_start(struct crowd *crowd, struct part *parts)
{
	const struct market *market = crowd->market;

	for (int i = 0; i < market->connections; i++) {
		parts[i] = part_new(crowd);
		parts[i].client->random = market->seed + (unsigned)i;
		parts[i].asked = calloc((size_t)market->clients, sizeof(*parts[i].asked));
		check(parts[i].asked != NULL);
		parts[i].number = i + 1;
		thread_start(&parts[i], clients_run);
	}
}

/* `n` threads, or none where the way has no such function. */
static int others_start(struct crowd *crowd, struct part *parts, int n,
			void (*run)(struct client *client, struct load *load))
{
	if (!run)
		return 0;
	for (int i = 0; i < n; i++) {
		parts[i] = part_new(crowd);
		parts[i].run = run;
		thread_start(&parts[i], other_run);
	}
	return n;
}

/* Each client asks, the clients of all connections in turn. */
static void requests_deal(struct crowd *crowd, struct part *parts)
{
	int connections = crowd->market->connections;

	for (int i = 0; i < crowd->market->clients; i++) {
		struct part *part = &parts[i % connections];
		struct asked *asked = &part->asked[part->n];

		asked->request = load_next(crowd->load, &asked->number);
		if (!asked->request)
			break;
		part->n++;
	}
}

static void part_end(struct part *part, struct crowd_result *result)
{
	result->attempts += part->client->attempts;
	result->attempts_failed += part->client->attempts_failed;
	client_free(part->client);
	free(part->asked);
}

void crowd_run(struct market *market, const struct way *way, struct load *load,
	       struct crowd_result *result)
{
	struct crowd crowd = { .market = market, .way = way, .load = load };
	int connections = market->connections, workers = way->workers ? way->workers : connections,
	    most = connections + (way->work ? workers : 0) + (way->watch ? 1 : 0), n = connections;
	struct part *parts = calloc((size_t)most, sizeof(*parts));

	check(parts && pthread_barrier_init(&crowd.barrier, NULL, (unsigned)most + 1) == 0);
	*result = (struct crowd_result){ 0 };
	connections_start(&crowd, parts);
	n += others_start(&crowd, parts + n, workers, way->work);
	n += others_start(&crowd, parts + n, 1, way->watch);
	check(n == most);
	pthread_barrier_wait(&crowd.barrier); /* the first sales are made */
	pthread_barrier_wait(&crowd.barrier); /* all connections are open */
	requests_deal(&crowd, parts);
	pthread_barrier_wait(&crowd.barrier);
	for (int i = 0; i < n; i++)
		pthread_join(parts[i].thread, NULL);
	/* Not earlier: RabbitMQ may drop what a connection has sent when it closes. */
	for (int i = 0; i < n; i++)
		part_end(&parts[i], result);
	pthread_barrier_destroy(&crowd.barrier);
	free(parts);
}
