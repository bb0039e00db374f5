#include "compare/load.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"
#include "compare/way.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define REPEATERS 10 /* every tenth user… */
#define REPEATS 3    /* …asks so often at once */

#define STACK_BYTES (256 * 1024) /* of a thread */

struct load {
	struct market *market;
	const struct way *way;
	pthread_barrier_t barrier;
	struct request *requests;
	int64_t *asked_us, *took_us; /* by request */
	enum outcome *outcomes;
	int n;
	atomic_int next, answered;
	atomic_llong sold, written;
	_Atomic int64_t committed_us; /* the last COMMIT */
};

static void users_shuffle(int *users, int n, unsigned seed)
{
	for (int i = 0; i < n; i++)
		users[i] = i + 1;
	for (int i = n - 1; i > 0; i--) {
		int j = rand_r(&seed) % (i + 1), user = users[i];

		users[i] = users[j];
		users[j] = user;
	}
}

static void requests_make(struct load *load)
{
	const struct market *market = load->market;
	int *users = calloc((size_t)market->users, sizeof(*users));

	check(users != NULL);
	load->requests = calloc((size_t)market->users * REPEATS, sizeof(*load->requests));
	check(load->requests != NULL);
	users_shuffle(users, market->users, market->seed);
	for (int i = 0; i < market->users; i++)
		for (int times = users[i] % REPEATERS ? 1 : REPEATS; times > 0; times--)
			load->requests[load->n++] = (struct request){
				.user = users[i], .item = users[i] % market->items + 1
			};
	free(users);
}

static void load_init(struct load *load, struct market *market, const struct way *way)
{
	*load = (struct load){ .market = market, .way = way };
	requests_make(load);
	load->asked_us = calloc((size_t)load->n, sizeof(*load->asked_us));
	load->took_us = calloc((size_t)load->n, sizeof(*load->took_us));
	load->outcomes = calloc((size_t)load->n, sizeof(*load->outcomes));
	check(load->asked_us && load->took_us && load->outcomes);
}

/* The next request, which is made now. NULL: there are no more. */
static const struct request *load_next(struct load *load, int *number)
{
	*number = atomic_fetch_add(&load->next, 1);
	if (*number >= load->n)
		return NULL;
	load->asked_us[*number] = clock_monotonic_us();
	return &load->requests[*number];
}

void load_committed(struct load *load)
{
	int64_t now_us = clock_monotonic_us(), last_us = load->committed_us;

	while (now_us > last_us &&
	       !atomic_compare_exchange_weak(&load->committed_us, &last_us, now_us))
		;
}

void load_written(struct load *load, const struct request *request)
{
	load_committed(load);
	if (request->item <= load->market->items)
		atomic_fetch_add(&load->written, 1);
}

long long load_written_n(const struct load *load)
{
	return load->written;
}

static void load_answer(struct load *load, int number, enum outcome outcome)
{
	int64_t now_us = clock_monotonic_us();

	load->took_us[number] = now_us - load->asked_us[number];
	load->outcomes[number] = outcome;
	if (outcome == SOLD)
		atomic_fetch_add(&load->sold, 1);
	atomic_fetch_add(&load->answered, 1);
}

int load_is_over(const struct load *load)
{
	return load->answered >= load->n;
}

long long load_sold(const struct load *load)
{
	return load->sold;
}

/* ---- the clients */

/* A thread with connections of its own: for clients, or behind them. */
struct part {
	struct load *load;
	struct client *client;
	pthread_t thread;
	/* of a thread for clients */
	int number;
	struct asked *asked;
	int n;
	long long attempts, attempts_failed;
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

static enum outcome buy(struct part *part, const struct request *request)
{
	const struct way *way = part->load->way;
	int64_t until_ms = way->tries_ms ? clock_monotonic_ms() + way->tries_ms : INT64_MAX;
	enum outcome outcome;

	for (int tried = 1;; tried++) {
		outcome = way->buy(part->client, request);
		part->attempts++;
		if (outcome != FAILED)
			return outcome;
		part->attempts_failed++;
		if (tried == way->tries || clock_monotonic_ms() >= until_ms)
			return outcome;
	}
}

static enum outcome answer_get(struct part *part, struct asked *asked)
{
	const struct way *way = part->load->way;
	enum outcome outcome = way->ask ? way->answer(part->client, asked)
					: buy(part, asked->request);

	if (outcome == SOLD && !way->work && !way->watch)
		load_committed(part->load);
	return outcome;
}

static void flush(struct part *part)
{
	if (part->load->way->flush)
		part->load->way->flush(part->client);
}

/* What is sent is flushed by the quarter of the clients. */
static void clients_serve(struct part *part)
{
	const struct way *way = part->load->way;
	struct load *load = part->load;
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
	const struct way *way = part->load->way;
	const struct request request = { .user = part->number,
					 .item = part->load->market->items + 1 };
	struct asked asked = { .request = &request };

	if (way->ask)
		way->ask(part->client, &asked);
	flush(part);
	if (way->ask)
		way->answer(part->client, &asked);
	else
		buy(part, &request);
	part->attempts = part->attempts_failed = 0;
}

static void *clients_run(void *opaque)
{
	struct part *part = opaque;
	pthread_barrier_t *barrier = &part->load->barrier;

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
	pthread_barrier_t *barrier = &part->load->barrier;

	pthread_barrier_wait(barrier);
	if (part->load->way->open)
		part->load->way->open(part->client);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	part->run(part->client, part->load);
	return NULL;
}

static struct part part_new(struct load *load)
{
	return (struct part){ .load = load, .client = client_new(load->market) };
}

static void connections_start(struct load *load, struct part *parts)
{
	const struct market *market = load->market;

	for (int i = 0; i < market->connections; i++) {
		parts[i] = part_new(load);
		parts[i].client->random = market->seed + (unsigned)i;
		parts[i].asked = calloc((size_t)market->clients, sizeof(*parts[i].asked));
		check(parts[i].asked != NULL);
		parts[i].number = i + 1;
		thread_start(&parts[i], clients_run);
	}
}

/* `n` threads, or none where the way has no such function. */
static int others_start(struct load *load, struct part *parts, int n,
			void (*run)(struct client *client, struct load *load))
{
	if (!run)
		return 0;
	for (int i = 0; i < n; i++) {
		parts[i] = part_new(load);
		parts[i].run = run;
		thread_start(&parts[i], other_run);
	}
	return n;
}

/* Each client asks, the clients of all connections in turn. */
static void requests_deal(struct load *load, struct part *parts)
{
	int connections = load->market->connections;

	for (int i = 0; i < load->market->clients; i++) {
		struct part *part = &parts[i % connections];
		struct asked *asked = &part->asked[part->n];

		asked->request = load_next(load, &asked->number);
		if (!asked->request)
			break;
		part->n++;
	}
}

/* ---- the result */

/* Of the requests that were sold. */
static void latencies_read(const struct load *load, struct result *result)
{
	int64_t *took_us = calloc((size_t)load->n + 1, sizeof(*took_us));
	size_t n = 0;

	check(took_us != NULL);
	for (int i = 0; i < load->n; i++)
		if (load->outcomes[i] == SOLD)
			took_us[n++] = load->took_us[i];
	qsort(took_us, n, sizeof(*took_us), number_compare);
	result->latency_p50_us = took_us[n / 2];
	result->latency_p99_us = took_us[n * 99 / 100];
	free(took_us);
}

static void result_read(const struct load *load, struct result *result)
{
	int64_t begun_us = load->asked_us[0], last_us = 0;

	result->requests = load->n;
	for (int i = 0; i < load->n; i++) {
		int64_t answered_us = load->asked_us[i] + load->took_us[i];

		result->sold += load->outcomes[i] == SOLD;
		result->failed += load->outcomes[i] == FAILED;
		if (load->asked_us[i] < begun_us)
			begun_us = load->asked_us[i];
		if (answered_us > last_us)
			last_us = answered_us;
	}
	result->answered_us = last_us - begun_us;
	result->committed_us = load->committed_us ? load->committed_us - begun_us : 0;
	latencies_read(load, result);
}

static void part_end(struct part *part, struct result *result)
{
	result->attempts += part->attempts;
	result->attempts_failed += part->attempts_failed;
	client_free(part->client);
	free(part->asked);
}

void load_run(struct market *market, const struct way *way, struct result *result)
{
	struct load load;
	int connections = market->connections, workers = way->workers ? way->workers : connections,
	    most = connections + (way->work ? workers : 0) + (way->watch ? 1 : 0), n = connections;
	struct part *parts = calloc((size_t)most, sizeof(*parts));

	*result = (struct result){ 0 };
	load_init(&load, market, way);
	check(parts && pthread_barrier_init(&load.barrier, NULL, (unsigned)most + 1) == 0);
	connections_start(&load, parts);
	n += others_start(&load, parts + n, workers, way->work);
	n += others_start(&load, parts + n, 1, way->watch);
	check(n == most);
	pthread_barrier_wait(&load.barrier); /* the first sales are made */
	pthread_barrier_wait(&load.barrier); /* all connections are open */
	requests_deal(&load, parts);
	pthread_barrier_wait(&load.barrier);
	for (int i = 0; i < n; i++)
		pthread_join(parts[i].thread, NULL);
	/* Not earlier: RabbitMQ may drop what a connection has sent when it closes. */
	for (int i = 0; i < n; i++)
		part_end(&parts[i], result);
	pthread_barrier_destroy(&load.barrier);
	free(parts);
	result_read(&load, result);
	free(load.requests);
	free(load.asked_us);
	free(load.took_us);
	free(load.outcomes);
}
