#include "compare/load.h"

#include "common/check.h"
#include "common/clock.h"
#include "compare/way.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define REPEATERS 10 /* every tenth user… */
#define REPEATS 3    /* …asks so often at once */
#define STACK_BYTES (256 * 1024)

struct load {
	const struct market *market;
	const struct way *way;
	struct request *requests;
	int64_t *asked_us, *took_us; /* by request */
	enum outcome *outcomes;
	int n;
	atomic_int next, answered;
	atomic_llong sold, written;
	_Atomic int64_t committed_us;
	pthread_barrier_t start;
	/* connections that no client uses */
	pthread_mutex_t mutex;
	pthread_cond_t returned;
	struct client **idle;
	int idle_n;
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

static struct client *client_new(const struct market *market, int number)
{
	struct client *client = calloc(1, sizeof(*client));

	check(client != NULL);
	client->market = (struct market *)(uintptr_t)market;
	client->random = market->seed + (unsigned)number;
	return client;
}

const struct request *load_next(struct load *load, int *number)
{
	*number = atomic_fetch_add(&load->next, 1);
	if (*number >= load->n)
		return NULL;
	load->asked_us[*number] = clock_monotonic_us();
	return &load->requests[*number];
}

void load_committed(struct load *load, const struct request *request)
{
	load->committed_us = clock_monotonic_us();
	if (request->item <= load->market->items)
		atomic_fetch_add(&load->written, 1);
}

void load_committed_all(struct load *load)
{
	load->committed_us = clock_monotonic_us();
}

long long load_written(const struct load *load)
{
	return load->written;
}

void load_answer(struct load *load, int number, enum outcome outcome)
{
	int64_t now_us = clock_monotonic_us();

	load->took_us[number] = now_us - load->asked_us[number];
	load->outcomes[number] = outcome;
	if (outcome == SOLD) {
		atomic_fetch_add(&load->sold, 1);
		if (!load->way->work && !load->way->serve)
			load->committed_us = now_us;
	}
	atomic_fetch_add(&load->answered, 1);
}

int load_window(const struct load *load)
{
	return (load->market->clients + load->market->connections - 1) / load->market->connections;
}

int load_is_over(const struct load *load)
{
	return load->answered >= load->n;
}

long long load_sold(const struct load *load)
{
	return load->sold;
}

static struct client *idle_take(struct load *load)
{
	struct client *client;

	pthread_mutex_lock(&load->mutex);
	while (load->idle_n == 0)
		pthread_cond_wait(&load->returned, &load->mutex);
	client = load->idle[--load->idle_n];
	pthread_mutex_unlock(&load->mutex);
	return client;
}

static void idle_return(struct load *load, struct client *client)
{
	pthread_mutex_lock(&load->mutex);
	load->idle[load->idle_n++] = client;
	pthread_cond_signal(&load->returned);
	pthread_mutex_unlock(&load->mutex);
}

/* One client: it waits for a connection, asks, waits for the answer. */
static void *client_run(void *opaque)
{
	struct load *load = opaque;
	const struct request *request;
	int number;

	pthread_barrier_wait(&load->start);
	while ((request = load_next(load, &number))) {
		struct client *client = idle_take(load);

		load_answer(load, number, load->way->buy(client, request));
		idle_return(load, client);
	}
	return NULL;
}

struct part { /* a thread with a connection of its own */
	struct load *load;
	struct client *client;
	pthread_t thread;
};

static void *serve_run(void *opaque)
{
	struct part *part = opaque;

	part->load->way->open(part->client);
	pthread_barrier_wait(&part->load->start);
	part->load->way->serve(part->client, part->load);
	return NULL;
}

static void *work_run(void *opaque)
{
	struct part *part = opaque;

	part->load->way->open(part->client);
	pthread_barrier_wait(&part->load->start);
	part->load->way->work(part->client, part->load);
	return NULL;
}

static void *watch_run(void *opaque)
{
	struct part *part = opaque;

	pthread_barrier_wait(&part->load->start);
	part->load->way->watch(part->client, part->load);
	return NULL;
}

static void thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	pthread_attr_t attr;

	check(pthread_attr_init(&attr) == 0 &&
	      pthread_attr_setstacksize(&attr, STACK_BYTES) == 0);
	if (pthread_create(thread, &attr, run, argument))
		client_fail("system", "start a thread", "too many");
	pthread_attr_destroy(&attr);
}

static void parts_start(struct load *load, struct part *parts, int n, void *(*run)(void *))
{
	for (int i = 0; i < n; i++) {
		parts[i].load = load;
		parts[i].client = client_new(load->market, 1000 + i);
		thread_start(&parts[i].thread, run, &parts[i]);
	}
}

static void parts_join(struct part *parts, int n, struct load_result *result)
{
	for (int i = 0; i < n; i++) {
		pthread_join(parts[i].thread, NULL);
		result->attempts += parts[i].client->attempts;
		result->attempts_failed += parts[i].client->attempts_failed;
		client_free(parts[i].client);
	}
}

/* Clients and, behind a queue, workers. Returns when they began. */
static int64_t load_clients(struct load *load, struct load_result *result)
{
	const struct market *market = load->market;
	int clients = load->way->serve ? 0 : market->clients,
	    servers = load->way->serve ? market->connections : 0,
	    workers = load->way->work ? market->connections : 0,
	    watchers = load->way->watch ? 1 : 0, others = servers + workers + watchers;
	pthread_t *threads = calloc((size_t)clients + 1, sizeof(*threads));
	struct part *parts = calloc((size_t)others + 1, sizeof(*parts));
	int64_t begun_us;

	check(threads && parts);
	check(pthread_barrier_init(&load->start, NULL, (unsigned)(clients + others + 1)) == 0);
	for (int i = 0; i < clients; i++)
		thread_start(&threads[i], client_run, load);
	parts_start(load, parts, servers, serve_run);
	parts_start(load, parts + servers, workers, work_run);
	parts_start(load, parts + servers + workers, watchers, watch_run);
	pthread_barrier_wait(&load->start);
	begun_us = clock_monotonic_us();
	for (int i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
	parts_join(parts, others, result);
	pthread_barrier_destroy(&load->start);
	free(threads);
	free(parts);
	return begun_us;
}

static int time_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Of the requests that were sold. */
static void latencies_read(const struct load *load, struct load_result *result)
{
	int64_t *took_us = calloc((size_t)load->n + 1, sizeof(*took_us));
	size_t n = 0;

	check(took_us != NULL);
	for (int i = 0; i < load->n; i++)
		if (load->outcomes[i] == SOLD)
			took_us[n++] = load->took_us[i];
	qsort(took_us, n, sizeof(*took_us), time_compare);
	result->latency_p50_us = took_us[n / 2];
	result->latency_p99_us = took_us[n * 99 / 100];
	free(took_us);
}

static void result_read(const struct load *load, int64_t begun_us, struct load_result *result)
{
	int64_t last_us = 0;

	result->requests = load->n;
	for (int i = 0; i < load->n; i++) {
		int64_t answered_us = load->asked_us[i] + load->took_us[i];

		result->sold += load->outcomes[i] == SOLD;
		result->failed += load->outcomes[i] == FAILED;
		if (answered_us > last_us)
			last_us = answered_us;
	}
	if (result->attempts == 0) /* the way does not try again */
		result->attempts = load->n;
	result->answered_us = last_us - begun_us;
	result->committed_us = load->committed_us ? load->committed_us - begun_us : 0;
	latencies_read(load, result);
}

/*
 * Each connection sells one piece of an item that is not judged, so that it is open, and its
 * statements are prepared, before the clock runs.
 */
static void pool_open(struct load *load)
{
	const struct market *market = load->market;

	load->idle = calloc((size_t)market->connections, sizeof(*load->idle));
	check(load->idle != NULL);
	for (int i = 0; i < market->connections && load->way->buy; i++) {
		struct client *client = client_new(market, i);

		load->way->buy(client, &(struct request){ .user = i + 1,
							  .item = market->items + 1 });
		client->attempts = client->attempts_failed = 0;
		load->idle[load->idle_n++] = client;
	}
}

static void pool_close(struct load *load, struct load_result *result)
{
	while (load->idle_n > 0) {
		struct client *client = load->idle[--load->idle_n];

		result->attempts += client->attempts;
		result->attempts_failed += client->attempts_failed;
		client_free(client);
	}
	free(load->idle);
}

void load_run(const struct market *market, const struct way *way, struct load_result *result)
{
	struct load load = { .market = market,
			     .way = way,
			     .mutex = PTHREAD_MUTEX_INITIALIZER,
			     .returned = PTHREAD_COND_INITIALIZER };
	int64_t begun_us;

	*result = (struct load_result){ 0 };
	requests_make(&load);
	load.asked_us = calloc((size_t)load.n, sizeof(*load.asked_us));
	load.took_us = calloc((size_t)load.n, sizeof(*load.took_us));
	load.outcomes = calloc((size_t)load.n, sizeof(*load.outcomes));
	check(load.asked_us && load.took_us && load.outcomes);
	pool_open(&load);
	begun_us = load_clients(&load, result);
	pool_close(&load, result);
	result_read(&load, begun_us, result);
	free(load.requests);
	free(load.asked_us);
	free(load.took_us);
	free(load.outcomes);
}
