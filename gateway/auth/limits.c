/*
 * Times are in ns: a rate of up to 1,000,000 a second is then kept within 0.1 %, which in µs it
 * would not be. A word is the theoretical arrival time of its key. It grows with each request, and
 * an entry gets a later one before it gets another key, so no request is counted for another.
 */
#include "gateway/auth/limits.h"

#include "common/check.h"
#include "gateway/auth/word_table.h"

#include <stdio.h>

#define SECOND_NS INT64_C(1000000000)
#define BURST_MAX (LIMIT_RATE_MAX * INT64_C(60))
#define BURST_SECONDS 2
#define BURST_LEAST 20
#define FOUND_TRIES 8 /* for an entry that others take over again and again */

/*
 * The entries of each kind: so many that even of 10,000 keys, all at their limits, hardly ever more
 * than WORD_WAYS share a set.
 */
#define ENTRIES 131072

static const char *const names[LIMIT_KINDS] = {
	[LIMIT_KEY] = "key",     [LIMIT_USER] = "user",   [LIMIT_ADDRESS] = "address",
	[LIMIT_WRONG] = "wrong", [LIMIT_CODES] = "codes",
};

static struct word_table tables[LIMIT_KINDS];

/* Entries that owe nothing rank first, then entries that owe least. */
static uint64_t arrival_rank(uint64_t arrival)
{
	return arrival;
}

/*
 * Nothing is owed, and it is later than the time before. Only the time of one that is forgotten in
 * a full set, or that gave something back, may come again: if it does to the ns, between two
 * instructions of another process, one request is counted for another key.
 */
static uint64_t arrival_fresh(uint64_t arrival, int64_t now_ns)
{
	return arrival < (uint64_t)now_ns ? arrival + 1 : (uint64_t)now_ns;
}

void limits_init(size_t processes)
{
	static const struct word_rules rules = { .rank = arrival_rank, .fresh = arrival_fresh };

	for (size_t i = 0; i < LIMIT_KINDS; i++)
		word_table_init(&tables[i], ENTRIES, processes, &rules);
}

void limits_enter(size_t process)
{
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		word_table_enter(&tables[i], process);
}

int64_t limit_burst(int64_t rate)
{
	return rate * BURST_SECONDS > BURST_LEAST ? rate * BURST_SECONDS : BURST_LEAST;
}

static int64_t cost_ns(const struct limit *limit)
{
	return SECOND_NS / limit->rate;
}

/* What is taken and not yet paid for. */
static int64_t debt_ns(uint64_t arrival, int64_t now_ns)
{
	return (int64_t)arrival > now_ns ? (int64_t)arrival - now_ns : 0;
}

/* How long until one more fits into the burst beside this debt; 0 or less: it does. */
static int64_t wait_ns(const struct limit *limit, int64_t debt)
{
	return debt + cost_ns(limit) - limit->burst * cost_ns(limit);
}

static int64_t rounded_up(int64_t time, int64_t unit)
{
	return time > 0 ? (time + unit - 1) / unit : 0;
}

/* With this debt, which has what was taken in it. */
static struct limit_verdict verdict_of(const struct limit *limit, int64_t debt, int is_refused)
{
	int64_t room = limit->burst * cost_ns(limit) - debt;
	int64_t left = room > 0 ? room / cost_ns(limit) : 0;

	return (struct limit_verdict){
		.wait_us = is_refused ? rounded_up(wait_ns(limit, debt), 1000) : 0,
		.of = limit,
		.left = left,
		.more_us = left < limit->burst
				   ? rounded_up((left + 1) * cost_ns(limit) - room, 1000)
				   : 0,
	};
}

/* Takes one if it fits. */
static struct limit_verdict one_take(const struct limit *limit, int64_t now_ns)
{
	const struct word_table *table = &tables[limit->kind];
	struct word_entry *entry;

	for (size_t tries = 0; tries < FOUND_TRIES; tries++) {
		entry = word_make(table, limit->key, now_ns);
		while (entry) {
			uint64_t old = atomic_load(&entry->word);
			int64_t debt = debt_ns(old, now_ns);

			if (!word_is_of(entry, limit->key))
				break;
			if (wait_ns(limit, debt) > 0)
				return verdict_of(limit, debt, 1);
			debt += cost_ns(limit);
			if (atomic_compare_exchange_strong(&entry->word, &old,
							   (uint64_t)(now_ns + debt)))
				return verdict_of(limit, debt, 0);
		}
	}
	/* There is no entry for it: the honest are not refused for that. */
	return verdict_of(limit, cost_ns(limit), 0);
}

/* One that was taken. If the key was forgotten meanwhile, so was what it took. */
static void one_give_back(const struct limit *limit)
{
	struct word_entry *entry = word_find(&tables[limit->kind], limit->key);
	uint64_t old;

	while (entry) {
		old = atomic_load(&entry->word);
		if (!word_is_of(entry, limit->key) || old < (uint64_t)cost_ns(limit))
			return;
		if (atomic_compare_exchange_strong(&entry->word, &old,
						   old - (uint64_t)cost_ns(limit)))
			return;
	}
}

/* The one that refuses for longer, else the one of which less is left. */
static struct limit_verdict stricter(struct limit_verdict one, struct limit_verdict other)
{
	if (!other.of || (one.of && one.wait_us > other.wait_us))
		return one;
	if (!one.of || other.wait_us > one.wait_us)
		return other;
	return other.left < one.left ? other : one;
}

static int is_on(const struct limit *limit)
{
	check(limit->kind < LIMIT_KINDS && limit->rate <= LIMIT_RATE_MAX);
	if (limit->rate <= 0)
		return 0;
	check(limit->burst > 0 && limit->burst <= BURST_MAX);
	return 1;
}

struct limit_verdict limits_look(const struct limit *limits, size_t n, int64_t now_us)
{
	struct limit_verdict verdict = { 0 };

	for (size_t i = 0; i < n; i++) {
		const struct limit *limit = &limits[i];
		const struct word_entry *entry;
		uint64_t arrival;
		int64_t debt;

		if (!is_on(limit))
			continue;
		entry = word_find(&tables[limit->kind], limit->key);
		arrival = entry ? atomic_load(&entry->word) : 0;
		if (entry && !word_is_of(entry, limit->key))
			arrival = 0; /* forgotten just now */
		debt = debt_ns(arrival, now_us * 1000);
		verdict = stricter(verdict, verdict_of(limit, debt, wait_ns(limit, debt) > 0));
	}
	return verdict;
}

/*
 * It looks at all before it takes from any, so that what one limit refuses is not missing from
 * another meanwhile. Only what another process takes between the two is given back.
 */
struct limit_verdict limits_take(const struct limit *limits, size_t n, int64_t now_us)
{
	struct limit_verdict verdict = { 0 };

	if (n > 1) {
		verdict = limits_look(limits, n, now_us);
		if (verdict.wait_us > 0)
			return verdict;
		verdict = (struct limit_verdict){ 0 };
	}
	for (size_t i = 0; i < n; i++) {
		if (!is_on(&limits[i]))
			continue;
		verdict = stricter(verdict, one_take(&limits[i], now_us * 1000));
		if (verdict.wait_us == 0)
			continue;
		while (i-- > 0)
			if (is_on(&limits[i]))
				one_give_back(&limits[i]);
		return verdict;
	}
	return verdict;
}

int64_t limit_retry_after_ms(const struct limit_verdict *verdict)
{
	int64_t ms = rounded_up(verdict->wait_us, 1000);

	return ms > 0 ? ms : 1;
}

size_t limit_policy_write(const struct limit *limits, size_t n, char text[LIMIT_POLICY_SIZE])
{
	size_t len = 0;

	text[0] = '\0';
	check(n <= LIMIT_KINDS);
	for (size_t i = 0; i < n; i++) {
		int64_t window_us;

		if (!is_on(&limits[i]))
			continue;
		window_us = rounded_up(limits[i].burst * cost_ns(&limits[i]), 1000);
		len += (size_t)snprintf(text + len, LIMIT_POLICY_SIZE - len,
					"%s\"%s\";q=%lld;w=%lld", len > 0 ? ", " : "",
					names[limits[i].kind], (long long)limits[i].burst,
					(long long)rounded_up(window_us, 1000000));
	}
	check(len < LIMIT_POLICY_SIZE);
	return len;
}

size_t limit_state_write(const struct limit_verdict *verdict, char text[LIMIT_STATE_SIZE])
{
	int len = 0;

	text[0] = '\0';
	if (verdict->of)
		len = snprintf(text, LIMIT_STATE_SIZE, "\"%s\";r=%lld;t=%lld",
			       names[verdict->of->kind], (long long)verdict->left,
			       (long long)rounded_up(verdict->more_us, 1000000));
	check(len >= 0 && len < LIMIT_STATE_SIZE);
	return (size_t)len;
}
