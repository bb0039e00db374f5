/*
 * The requests of a run in the order in which they are made, their answers, and the clients that
 * make them. Every tenth user asks three times in a row. Each client asks for one piece, waits for
 * the answer, and asks for the next one. A connection is a thread that carries its share of the
 * clients, whatever the way:
 *
 *	asked: [ 7 ][ 3 ][ 9 ][ 4 ] … one place for each client, answered in turn
 *	         │ way->buy(): the first is served, the others wait for the connection
 *	         │ way->ask(), way->answer(): all have been sent
 *
 * A request's time runs from when its client asks. way->work(): a thread for each worker;
 * way->watch(): one.
 */
#include "compare/way.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define REPEATERS 10 /* every tenth user… */
#define REPEATS 3    /* …asks so often at once */

/* A request, and what became of it. */
struct made {
	struct request request;
	int64_t asked_us, took_us;
	enum outcome outcome;
};

struct load {
	struct market *market;
	const struct way *way;
	pthread_barrier_t barrier;
	struct made *made;
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

	load->made = calloc((size_t)market->users * REPEATS, sizeof(*load->made));
	check(users && load->made);
	users_shuffle(users, market->users, market->seed);
	for (int i = 0; i < market->users; i++)
		for (int times = users[i] % REPEATERS ? 1 : REPEATS; times > 0; times--)
			load->made[load->n++].request = (struct request){
				.user = users[i], .item = users[i] % market->items + 1
			};
	free(users);
}

/* ---- the gap between a read and a write */

/* The requests that are served now, and those that are in the gap. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t all_have_read;
	int served, waiting, round;
} meeting = { .mutex = PTHREAD_MUTEX_INITIALIZER, .all_have_read = PTHREAD_COND_INITIALIZER };

static void meeting_end_if_all(void)
{
	if (meeting.waiting < meeting.served)
		return;
	meeting.waiting = 0;
	meeting.round++;
	pthread_cond_broadcast(&meeting.all_have_read);
}

/* A request begins to be served (1), or is answered (-1). */
static void meeting_count(int change)
{
	pthread_mutex_lock(&meeting.mutex);
	meeting.served += change;
	meeting_end_if_all();
	pthread_mutex_unlock(&meeting.mutex);
}

static void meet(void)
{
	int round;

	pthread_mutex_lock(&meeting.mutex);
	round = meeting.round;
	meeting.waiting++;
	meeting_end_if_all();
	while (round == meeting.round)
		pthread_cond_wait(&meeting.all_have_read, &meeting.mutex);
	pthread_mutex_unlock(&meeting.mutex);
}

void gap(const struct market *market, const struct request *request)
{
	static atomic_int sales;

	if (request->item > market->items)
		return;
	/* As a long garbage collection or a virtual machine that is moved would stop it. */
	if (market->pause_every &&
	    atomic_fetch_add(&sales, 1) % market->pause_every == market->pause_every - 1)
		poll(NULL, 0, market->pause_ms);
	if (market->is_meeting)
		meet();
}

/* ---- the requests */

/* The next request, which is made now. 0: there are no more. */
static int load_next(struct load *load, struct asked *asked)
{
	asked->number = atomic_fetch_add(&load->next, 1);
	if (asked->number >= load->n)
		return 0;
	load->made[asked->number].asked_us = clock_monotonic_us();
	asked->request = &load->made[asked->number].request;
	meeting_count(1);
	return 1;
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

static void load_answer(struct load *load, int number, enum outcome outcome)
{
	struct made *made = &load->made[number];

	made->took_us = clock_monotonic_us() - made->asked_us;
	made->outcome = outcome;
	if (outcome == SOLD)
		atomic_fetch_add(&load->sold, 1);
	atomic_fetch_add(&load->answered, 1);
	meeting_count(-1);
}

int load_is_over(const struct load *load, long long sales)
{
	return load->answered >= load->n && sales >= load->sold;
}

int load_is_written(const struct load *load)
{
	return load_is_over(load, load->written);
}

/* ---- the clients */

/* A thread with connections of its own: for clients, or behind them. */
struct part {
	struct load *load;
	struct client *client;
	pthread_t thread;
	void (*run)(struct client *client, struct load *load); /* NULL: for clients */
	int number;
	struct asked *asked;
	int n;
	long long attempts, attempts_failed;
};

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
	int unsent = 0, left = part->n, is_next;

	for (int i = 0; i < part->n && way->ask; i++)
		way->ask(part->client, &part->asked[i]);
	flush(part);
	for (int i = 0; left > 0; i = (i + 1) % part->n) {
		struct asked *asked = &part->asked[i];
		enum outcome outcome = answer_get(part, asked);

		load_answer(load, asked->number, outcome);
		is_next = load_next(load, asked);
		if (!is_next)
			left--;
		else if (way->ask)
			way->ask(part->client, asked);
		unsent++;
		if (is_next && unsent < part->n / 4)
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
	answer_get(part, &asked);
	part->attempts = part->attempts_failed = 0;
}

static void *part_run(void *opaque)
{
	struct part *part = opaque;
	struct load *load = part->load;

	if (!part->run)
		first_sell(part);
	pthread_barrier_wait(&load->barrier);
	if (part->run)
		sql(part->client, "SELECT 1");
	if (part->run && load->way->open)
		load->way->open(part->client);
	pthread_barrier_wait(&load->barrier);
	pthread_barrier_wait(&load->barrier);
	if (part->run)
		part->run(part->client, load);
	else
		clients_serve(part);
	return NULL;
}

/* Starts `n` threads. */
static int parts_start(struct load *load, struct part *parts, int n,
		       void (*run)(struct client *client, struct load *load))
{
	for (int i = 0; i < n; i++) {
		parts[i] = (struct part){
			.load = load,
			.client = client_new(load->market, load->way),
			.run = run,
			.number = i + 1,
			.asked = checked(
				calloc((size_t)load->market->clients, sizeof(struct asked))),
		};
		parts[i].client->random = load->market->seed + (unsigned)i;
		if (pthread_create(&parts[i].thread, NULL, part_run, &parts[i]))
			client_fail("system", "start a thread", "too many");
	}
	return n;
}

/* Each client asks, the clients of all connections in turn. */
static void requests_deal(struct load *load, struct part *parts)
{
	int connections = load->market->connections;

	for (int i = 0; i < load->market->clients; i++) {
		struct part *part = &parts[i % connections];

		if (!load_next(load, &part->asked[part->n]))
			break;
		part->n++;
	}
}

/* ---- the result */

static void result_read(const struct load *load, struct result *result)
{
	int64_t begun_us = load->made[0].asked_us, last_us = 0;
	/* The latencies of the requests that got a piece. */
	int64_t *took_us = checked(calloc((size_t)load->n + 1, sizeof(*took_us)));
	size_t n = 0;

	for (const struct made *made = load->made; made < load->made + load->n; made++) {
		if (made->outcome == SOLD)
			took_us[n++] = made->took_us;
		result->told_failed += made->outcome == FAILED;
		if (made->asked_us < begun_us)
			begun_us = made->asked_us;
		if (made->asked_us + made->took_us > last_us)
			last_us = made->asked_us + made->took_us;
	}
	qsort(took_us, n, sizeof(*took_us), number_compare);
	result->requests = load->n;
	result->told_sold = (long long)n;
	result->answered_us = last_us - begun_us;
	result->committed_us = load->committed_us ? load->committed_us - begun_us : 0;
	result->latency_p50_us = took_us[n / 2];
	result->latency_p99_us = took_us[n * 99 / 100];
	free(took_us);
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
	struct load load = { .market = market, .way = way };
	int connections = market->connections, workers = way->workers ? way->workers : connections,
	    most = connections + (way->work ? workers : 0) + (way->watch ? 1 : 0), n = connections;
	struct part *parts = calloc((size_t)most, sizeof(*parts));

	*result = (struct result){ 0 };
	requests_make(&load);
	check(parts && pthread_barrier_init(&load.barrier, NULL, (unsigned)most + 1) == 0);
	parts_start(&load, parts, connections, NULL);
	if (way->work)
		n += parts_start(&load, parts + n, workers, way->work);
	if (way->watch)
		parts_start(&load, parts + n, 1, way->watch);
	pthread_barrier_wait(&load.barrier); /* the first sales are made, which do not count */
	load.committed_us = 0;
	pthread_barrier_wait(&load.barrier); /* all connections are open */
	requests_deal(&load, parts);
	pthread_barrier_wait(&load.barrier);
	for (int i = 0; i < most; i++)
		pthread_join(parts[i].thread, NULL);
	/* Not earlier: RabbitMQ may drop what a connection has sent when it closes. */
	for (int i = 0; i < most; i++)
		part_end(&parts[i], result);
	pthread_barrier_destroy(&load.barrier);
	free(parts);
	result_read(&load, result);
	free(load.made);
}
