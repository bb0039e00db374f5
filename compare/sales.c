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
	struct sale_request request;
	int64_t asked_us, took_us;
	enum sale_outcome outcome;
};

struct sales {
	struct market *market;
	const struct way *way;
	pthread_barrier_t barrier;
	struct made *made;
	int n;
	atomic_int next, answered;
	atomic_llong sold, written;
	_Atomic int64_t committed_us; /* the last COMMIT */
};

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

void gap(const struct market *market, const struct sale_request *request)
{
	static atomic_int sales;
	int round;

	if (request->item > market->items)
		return;
	/* A long garbage collection, or the move of a virtual machine, pauses a process so. */
	if (market->pause_every &&
	    atomic_fetch_add(&sales, 1) % market->pause_every == market->pause_every - 1)
		poll(NULL, 0, market->pause_ms);
	if (!market->is_meeting)
		return;
	pthread_mutex_lock(&meeting.mutex);
	round = meeting.round;
	meeting.waiting++;
	meeting_end_if_all();
	while (round == meeting.round)
		pthread_cond_wait(&meeting.all_have_read, &meeting.mutex);
	pthread_mutex_unlock(&meeting.mutex);
}

/* ---- the requests */

/* The next request, which is made now. 0: there are no more. */
static int sales_next(struct sales *sales, struct sale_asked *asked)
{
	asked->number = atomic_fetch_add(&sales->next, 1);
	if (asked->number >= sales->n)
		return 0;
	sales->made[asked->number].asked_us = clock_monotonic_us();
	asked->request = &sales->made[asked->number].request;
	meeting_count(1);
	return 1;
}

void sales_committed(struct sales *sales)
{
	int64_t now_us = clock_monotonic_us(), last_us = sales->committed_us;

	while (now_us > last_us &&
	       !atomic_compare_exchange_weak(&sales->committed_us, &last_us, now_us))
		;
}

void sales_written(struct sales *sales, const struct sale_request *request)
{
	sales_committed(sales);
	if (request->item <= sales->market->items)
		atomic_fetch_add(&sales->written, 1);
}

int sales_are_over(const struct sales *sales, long long sold)
{
	return sales->answered >= sales->n && sold >= sales->sold;
}

int sales_are_written(const struct sales *sales)
{
	return sales_are_over(sales, sales->written);
}

/* ---- the clients */

/* A thread with connections of its own: for clients, or behind them. */
struct sales_part {
	struct sales *sales;
	struct seller *seller;
	pthread_t thread;
	void (*run)(struct seller *seller, struct sales *sales); /* NULL: for clients */
	int number;
	struct sale_asked *asked;
	int n;
	long long attempts, attempts_failed;
};

static enum sale_outcome answer_get(struct sales_part *part, struct sale_asked *asked)
{
	const struct way *way = part->sales->way;
	int64_t until_ms = way->tries_ms ? clock_monotonic_ms() + way->tries_ms : INT64_MAX;
	enum sale_outcome outcome = FAILED;

	if (way->ask)
		outcome = way->answer(part->seller, asked);
	for (int tried = 1; !way->ask; tried++) {
		outcome = way->buy(part->seller, asked->request);
		part->attempts++;
		if (outcome != FAILED)
			break;
		part->attempts_failed++;
		if (tried == way->tries || clock_monotonic_ms() >= until_ms)
			break;
	}
	if (outcome == SOLD && !way->work && !way->watch)
		sales_committed(part->sales);
	return outcome;
}

static void flush(struct sales_part *part)
{
	if (part->sales->way->flush)
		part->sales->way->flush(part->seller);
}

/* What is sent is flushed by the quarter of the clients. */
static void clients_serve(struct sales_part *part)
{
	const struct way *way = part->sales->way;
	struct sales *sales = part->sales;
	int unsent = 0, left = part->n, is_next;

	for (int i = 0; i < part->n && way->ask; i++)
		way->ask(part->seller, &part->asked[i]);
	flush(part);
	for (int i = 0; left > 0; i = (i + 1) % part->n) {
		struct sale_asked *asked = &part->asked[i];
		enum sale_outcome outcome = answer_get(part, asked);
		struct made *made = &sales->made[asked->number];

		made->took_us = clock_monotonic_us() - made->asked_us;
		made->outcome = outcome;
		if (outcome == SOLD)
			atomic_fetch_add(&sales->sold, 1);
		atomic_fetch_add(&sales->answered, 1);
		meeting_count(-1);
		is_next = sales_next(sales, asked);
		if (!is_next)
			left--;
		else if (way->ask)
			way->ask(part->seller, asked);
		unsent++;
		if (is_next && unsent < part->n / 4)
			continue;
		flush(part);
		unsent = 0;
	}
}

static void *part_run(void *opaque)
{
	struct sales_part *part = opaque;
	struct sales *sales = part->sales;
	const struct sale_request request = { .user = part->number,
					      .item = sales->market->items + 1 };
	struct sale_asked asked = { .request = &request };

	/*
	 * A connection for clients sells one piece of an item that is not judged, so that it is
	 * open, and its statements are prepared, before the clock runs.
	 */
	if (!part->run) {
		if (sales->way->ask)
			sales->way->ask(part->seller, &asked);
		flush(part);
		answer_get(part, &asked);
		part->attempts = part->attempts_failed = 0;
	}
	pthread_barrier_wait(&sales->barrier);
	if (part->run)
		sql(part->seller, "SELECT 1");
	if (part->run && sales->way->open)
		sales->way->open(part->seller);
	pthread_barrier_wait(&sales->barrier);
	pthread_barrier_wait(&sales->barrier);
	if (part->run)
		part->run(part->seller, sales);
	else
		clients_serve(part);
	return NULL;
}

/* Starts `n` threads. */
static int parts_start(struct sales *sales, struct sales_part *parts, int n,
		       void (*run)(struct seller *seller, struct sales *sales))
{
	for (int i = 0; i < n; i++) {
		parts[i] = (struct sales_part){
			.sales = sales,
			.seller = seller_new(sales->market, sales->way),
			.run = run,
			.number = i + 1,
			.asked = checked(
				calloc((size_t)sales->market->clients, sizeof(struct sale_asked))),
		};
		parts[i].seller->random = sales->market->seed + (unsigned)i;
		if (pthread_create(&parts[i].thread, NULL, part_run, &parts[i]))
			store_fail("system", "start a thread", "too many");
	}
	return n;
}

void sales_run(struct market *market, const struct way *way, struct sales_result *result)
{
	struct sales sales = { .market = market, .way = way };
	int connections = market->connections, workers = way->workers ? way->workers : connections,
	    most = connections + (way->work ? workers : 0) + (way->watch ? 1 : 0), n = connections;
	struct sales_part *parts = calloc((size_t)most, sizeof(*parts));
	int *users = calloc((size_t)market->users, sizeof(*users));
	int64_t begun_us, last_us = 0, *took_us;
	unsigned seed = market->seed;
	size_t sold_n = 0;

	*result = (struct sales_result){ 0 };
	sales.made = calloc((size_t)market->users * REPEATS, sizeof(*sales.made));
	check(parts && users && sales.made);
	for (int i = 0; i < market->users; i++)
		users[i] = i + 1;
	for (int i = market->users - 1; i > 0; i--) {
		int j = rand_r(&seed) % (i + 1), user = users[i];

		users[i] = users[j];
		users[j] = user;
	}
	for (int i = 0; i < market->users; i++)
		for (int times = users[i] % REPEATERS ? 1 : REPEATS; times > 0; times--)
			sales.made[sales.n++].request = (struct sale_request){
				.user = users[i], .item = users[i] % market->items + 1
			};
	free(users);

	check(pthread_barrier_init(&sales.barrier, NULL, (unsigned)most + 1) == 0);
	parts_start(&sales, parts, connections, NULL);
	if (way->work)
		n += parts_start(&sales, parts + n, workers, way->work);
	if (way->watch)
		parts_start(&sales, parts + n, 1, way->watch);
	pthread_barrier_wait(&sales.barrier); /* the first sales are made, which do not count */
	sales.committed_us = 0;
	pthread_barrier_wait(&sales.barrier); /* all connections are open */
	for (int i = 0; i < market->clients; i++) {
		/* Each client asks, the clients of all connections in turn. */
		struct sales_part *part = &parts[i % connections];

		if (!sales_next(&sales, &part->asked[part->n]))
			break;
		part->n++;
	}
	pthread_barrier_wait(&sales.barrier);
	for (int i = 0; i < most; i++)
		pthread_join(parts[i].thread, NULL);
	/* Closed no earlier: RabbitMQ may drop what a closing connection has sent. */
	for (int i = 0; i < most; i++) {
		result->attempts += parts[i].attempts;
		result->attempts_failed += parts[i].attempts_failed;
		seller_free(parts[i].seller);
		free(parts[i].asked);
	}
	pthread_barrier_destroy(&sales.barrier);
	free(parts);

	/* The latencies are those of the requests that got a piece. */
	took_us = checked(calloc((size_t)sales.n + 1, sizeof(*took_us)));
	begun_us = sales.made[0].asked_us;
	for (const struct made *made = sales.made; made < sales.made + sales.n; made++) {
		if (made->outcome == SOLD)
			took_us[sold_n++] = made->took_us;
		result->told_failed += made->outcome == FAILED;
		if (made->asked_us < begun_us)
			begun_us = made->asked_us;
		if (made->asked_us + made->took_us > last_us)
			last_us = made->asked_us + made->took_us;
	}
	qsort(took_us, sold_n, sizeof(*took_us), number_compare);
	result->requests = sales.n;
	result->told_sold = (long long)sold_n;
	result->answered_us = last_us - begun_us;
	result->committed_us = sales.committed_us ? sales.committed_us - begun_us : 0;
	result->latency_p50_us = took_us[sold_n / 2];
	result->latency_p99_us = took_us[sold_n * 99 / 100];
	free(took_us);
	free(sales.made);
}
