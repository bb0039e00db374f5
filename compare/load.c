#include "compare/load.h"

#include "common/check.h"
#include "common/clock.h"

#include <stdatomic.h>
#include <stdlib.h>

#define REPEATERS 10 /* every tenth user… */
#define REPEATS 3    /* …asks so often at once */

struct load {
	const struct market *market;
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

struct load *load_new(const struct market *market)
{
	struct load *load = calloc(1, sizeof(*load));

	check(load != NULL);
	load->market = market;
	requests_make(load);
	load->asked_us = calloc((size_t)load->n, sizeof(*load->asked_us));
	load->took_us = calloc((size_t)load->n, sizeof(*load->took_us));
	load->outcomes = calloc((size_t)load->n, sizeof(*load->outcomes));
	check(load->asked_us && load->took_us && load->outcomes);
	return load;
}

void load_free(struct load *load)
{
	free(load->requests);
	free(load->asked_us);
	free(load->took_us);
	free(load->outcomes);
	free(load);
}

const struct request *load_next(struct load *load, int *number)
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

void load_answer(struct load *load, int number, enum outcome outcome)
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

void load_result(const struct load *load, struct load_result *result)
{
	int64_t begun_us = load->asked_us[0], last_us = 0;

	*result = (struct load_result){ .requests = load->n };
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
