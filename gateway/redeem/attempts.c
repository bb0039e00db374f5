/*
 * A budget is one word: how many guesses are under way (TAKEN_BITS), and above them what wrong ones
 * have left:
 *
 *	user           when its wait is over, in ms, and how many were wrong (WRONG_BITS)
 *	address, all   until when its wrong codes are paid for, in µs: each costs 1 s / rate, and
 *	               what lies more than a second ahead is spent
 *
 * The words of users and addresses are in tables of small sets, found by a keyed hash. An entry
 * whose guesses are all judged may be given to another key. Its word could then be changed for the
 * key before, between two instructions of another process: one wrong code more or less.
 */
#include "gateway/redeem/attempts.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define SECOND_US 1000000
#define GOOD_US (5 * SECOND_US) /* a connection in good standing: 5 wrong, and one a second */
#define BAD_US (60 * SECOND_US) /* for no longer is a connection in bad standing */

#define TAKEN_BITS 14
#define TAKEN_MASK ((1u << TAKEN_BITS) - 1)
#define WRONG_BITS 11
#define WRONG_MASK ((1u << WRONG_BITS) - 1)

#define WAYS 8
#define USERS 65536
#define PEERS 16384
#define ENTRIES (USERS + PEERS)
#define CLAIMED_MAX 4096 /* keys below it: claimed by the process with this number, less 1 */

typedef atomic_uint_least64_t word;

struct entry {
	word key; /* 0: none */
	word budget;
};

/* What a guess under way has taken from: its entries; `in_use` is set first and cleared last. */
struct taken {
	atomic_uint_least32_t in_use, user, peer; /* number of the entry, from 1; 0: none */
};

struct shared {
	struct entry entries[ENTRIES]; /* of users, then of addresses */
	word all;
	struct taken taken[][ATTEMPTS_TAKEN_MAX]; /* of each process */
};

static struct shared *shared;
static struct attempts_limits limits;
static size_t mine, pages_n;

void attempts_init(size_t processes, const struct attempts_limits *wanted)
{
	shared = mmap(NULL, sizeof(*shared) + processes * sizeof(shared->taken[0]),
		      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED && processes < CLAIMED_MAX);
	limits = *wanted;
	pages_n = processes;
	mine = 0;
}

static unsigned taken_n(uint64_t budget)
{
	return (unsigned)(budget & TAKEN_MASK);
}

static void give_back(word *budget)
{
	uint64_t old = atomic_load(budget);

	while (taken_n(old) > 0 && !atomic_compare_exchange_weak(budget, &old, old - 1))
		;
}

static struct entry *entry_at(uint32_t number)
{
	return number ? &shared->entries[number - 1] : NULL;
}

/* If the process dies between two steps, one is given back twice, or one that was not taken. */
static void taken_give_back(struct taken *taken)
{
	struct entry *user = entry_at(atomic_load(&taken->user));
	struct entry *peer = entry_at(atomic_load(&taken->peer));

	if (user)
		give_back(&user->budget);
	atomic_store(&taken->user, 0);
	if (peer) {
		give_back(&peer->budget);
		give_back(&shared->all);
	}
	atomic_store(&taken->peer, 0);
	atomic_store(&taken->in_use, 0);
}

void attempts_enter(size_t process)
{
	check(shared && process < pages_n);
	mine = process;
	for (size_t i = 0; i < ATTEMPTS_TAKEN_MAX; i++)
		if (atomic_load(&shared->taken[mine][i].in_use))
			taken_give_back(&shared->taken[mine][i]);
	for (size_t i = 0; i < ENTRIES; i++) {
		uint64_t claimed = mine + 1; /* it died while it gave this one to another key */

		atomic_compare_exchange_strong(&shared->entries[i].key, &claimed, 0);
	}
}

/* Of a set: one that nobody uses, else the one that is over first, of those without guesses. */
static struct entry *entry_victim(struct entry *set)
{
	struct entry *found = NULL;
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < WAYS; i++) {
		uint64_t key = atomic_load(&set[i].key), budget = atomic_load(&set[i].budget);

		if (key > 0 && (key < CLAIMED_MAX || taken_n(budget) > 0))
			continue;
		if (key == 0)
			return &set[i];
		if (budget < least) {
			least = budget;
			found = &set[i];
		}
	}
	return found;
}

/* Gives the entry to the key. 0, or -1: another process has changed it. */
static int entry_claim(struct entry *entry, uint64_t key)
{
	uint64_t old = atomic_load(&entry->key);

	if ((old > 0 && old < CLAIMED_MAX) ||
	    !atomic_compare_exchange_strong(&entry->key, &old, mine + 1))
		return -1;
	if (old > 0 && taken_n(atomic_load(&entry->budget)) > 0) {
		atomic_store(&entry->key, old);
		return -1;
	}
	atomic_store(&entry->budget, 0);
	atomic_store(&entry->key, key);
	return 0;
}

/* Among `n` from the `first` on. NULL: there is none, and none can be made now. */
static struct entry *entry_find(size_t first, size_t n, uint64_t key, int make)
{
	struct entry *set = &shared->entries[first + key % (n / WAYS) * WAYS], *victim;

	key |= CLAIMED_MAX; /* never one of the small ones */
	for (size_t i = 0; i < WAYS; i++)
		if (atomic_load(&set[i].key) == key)
			return &set[i];
	if (!make)
		return NULL;
	for (size_t tries = 0; tries < WAYS && (victim = entry_victim(set)); tries++)
		if (entry_claim(victim, key) == 0)
			return victim;
	return NULL;
}

static struct entry *user_find(const struct request *request, int make)
{
	return limits.free_max == 0
		       ? NULL
		       : entry_find(0, USERS, hash_keyed(request->user.text, request->user.len),
				    make);
}

static struct entry *peer_find(const struct request *request, int make)
{
	return limits.wrong_max == 0 ? NULL
				     : entry_find(USERS, PEERS, request->responder->peer, make);
}

static int64_t user_until_ms(uint64_t budget)
{
	return (int64_t)(budget >> (TAKEN_BITS + WRONG_BITS));
}

static int64_t user_wrong(uint64_t budget, int64_t now_ms)
{
	return now_ms - user_until_ms(budget) > ATTEMPTS_FORGET_MS
		       ? 0
		       : (int64_t)(budget >> TAKEN_BITS & WRONG_MASK);
}

/* Each judges a budget: whether the request may take one more from it. */
typedef struct attempt judge_fn(uint64_t budget, const struct request *request, int64_t now_us);

static struct attempt user_judge(uint64_t budget, const struct request *request, int64_t now_us)
{
	int64_t now_ms = now_us / 1000, wait_ms = user_until_ms(budget) - now_ms;
	unsigned n = taken_n(budget);

	(void)request;
	if (wait_ms > 0)
		return (struct attempt){ .verdict = ATTEMPT_HELD, .wait_ms = wait_ms };
	if (n > 0 && (n == TAKEN_MASK || user_wrong(budget, now_ms) + n >= limits.free_max))
		return (struct attempt){ .verdict = ATTEMPT_WAITS };
	return (struct attempt){ .verdict = ATTEMPT_ALLOWED };
}

static int64_t cost_us(int64_t rate)
{
	return rate < SECOND_US ? SECOND_US / rate : 1;
}

/* Of an address or of all: `rate` a second, of which `ahead_us` may be spent at once. */
static struct attempt rate_judge(uint64_t budget, int64_t rate, int64_t ahead_us, int64_t now_us)
{
	int64_t spent_us = (int64_t)(budget >> TAKEN_BITS) - now_us;
	int64_t over_us = (spent_us > 0 ? spent_us : 0) + cost_us(rate) - ahead_us;
	unsigned n = taken_n(budget);

	if (over_us > 0)
		return (struct attempt){ .verdict = ATTEMPT_HELD, .wait_ms = over_us / 1000 + 1 };
	if (n > 0 && (n == TAKEN_MASK || over_us + n * cost_us(rate) > 0))
		return (struct attempt){ .verdict = ATTEMPT_WAITS };
	return (struct attempt){ .verdict = ATTEMPT_ALLOWED };
}

static int is_good(const struct request *request, int64_t now_us)
{
	return request->responder->codes_wrong_by_us - now_us < GOOD_US;
}

static struct attempt peer_judge(uint64_t budget, const struct request *request, int64_t now_us)
{
	return rate_judge(budget, limits.wrong_max,
			  is_good(request, now_us) ? 2 * SECOND_US : SECOND_US, now_us);
}

static struct attempt all_judge(uint64_t budget, const struct request *request, int64_t now_us)
{
	if (is_good(request, now_us) && taken_n(budget) < TAKEN_MASK)
		return (struct attempt){ .verdict = ATTEMPT_ALLOWED };
	return rate_judge(budget, ATTEMPTS_ALL_TIMES * limits.wrong_max, SECOND_US, now_us);
}

struct attempt attempts_look(const struct request *request, int64_t now_us)
{
	struct attempt attempt = { .verdict = ATTEMPT_ALLOWED };
	const struct entry *user = user_find(request, 0), *peer = peer_find(request, 0);

	if (user)
		attempt = user_judge(atomic_load(&user->budget), request, now_us);
	if (attempt.verdict == ATTEMPT_ALLOWED && peer)
		attempt = peer_judge(atomic_load(&peer->budget), request, now_us);
	if (attempt.verdict == ATTEMPT_ALLOWED && limits.wrong_max > 0)
		attempt = all_judge(atomic_load(&shared->all), request, now_us);
	return attempt;
}

static struct attempt budget_take(word *budget, judge_fn *judge, const struct request *request,
				  int64_t now_us)
{
	uint64_t old = atomic_load(budget);
	struct attempt attempt;

	do
		attempt = judge(old, request, now_us);
	while (attempt.verdict == ATTEMPT_ALLOWED &&
	       !atomic_compare_exchange_weak(budget, &old, old + 1));
	return attempt;
}

/* Its number is in `taken` before anything is taken. */
static struct attempt entry_take(struct entry *entry, atomic_uint_least32_t *taken, judge_fn *judge,
				 const struct request *request, int64_t now_us)
{
	struct attempt attempt = { .verdict = ATTEMPT_WAITS }; /* all of its set have guesses */

	if (!entry)
		return attempt;
	atomic_store(taken, (uint32_t)(entry - shared->entries) + 1);
	attempt = budget_take(&entry->budget, judge, request, now_us);
	if (attempt.verdict != ATTEMPT_ALLOWED)
		atomic_store(taken, 0);
	return attempt;
}

/* From the address and from all, or from neither. */
static struct attempt rates_take(struct taken *taken, const struct request *request, int64_t now_us)
{
	struct entry *peer = peer_find(request, 1);
	struct attempt attempt = entry_take(peer, &taken->peer, peer_judge, request, now_us);

	if (attempt.verdict != ATTEMPT_ALLOWED)
		return attempt;
	attempt = budget_take(&shared->all, all_judge, request, now_us);
	if (attempt.verdict != ATTEMPT_ALLOWED) {
		atomic_store(&taken->peer, 0);
		give_back(&peer->budget);
	}
	return attempt;
}

static size_t ticket_find(void)
{
	static size_t ticket;

	for (size_t i = 0; i < ATTEMPTS_TAKEN_MAX; i++) {
		ticket = (ticket + 1) % ATTEMPTS_TAKEN_MAX;
		if (!atomic_load(&shared->taken[mine][ticket].in_use))
			return ticket;
	}
	check(0);
	return 0;
}

struct attempt attempts_take(const struct request *request, int64_t now_us)
{
	struct attempt attempt = { .verdict = ATTEMPT_ALLOWED };
	size_t ticket = ticket_find();
	struct taken *taken = &shared->taken[mine][ticket];

	atomic_store(&taken->in_use, 1);
	if (limits.free_max > 0)
		attempt = entry_take(user_find(request, 1), &taken->user, user_judge, request,
				     now_us);
	if (attempt.verdict == ATTEMPT_ALLOWED && limits.wrong_max > 0)
		attempt = rates_take(taken, request, now_us);
	if (attempt.verdict != ATTEMPT_ALLOWED)
		taken_give_back(taken);
	attempt.ticket = ticket;
	return attempt;
}

static int64_t wait_after(int64_t wrong)
{
	int64_t wait_ms = ATTEMPTS_FIRST_WAIT_MS;

	while (--wrong > 0 && wait_ms < ATTEMPTS_LONGEST_WAIT_MS)
		wait_ms *= 2;
	return wait_ms < ATTEMPTS_LONGEST_WAIT_MS ? wait_ms : ATTEMPTS_LONGEST_WAIT_MS;
}

static void user_spend(word *budget, int64_t now_ms)
{
	uint64_t old = atomic_load(budget), spent;

	do {
		int64_t wrong = user_wrong(old, now_ms) + 1, until_ms = now_ms;

		if (wrong > limits.free_max)
			until_ms += wait_after(wrong - limits.free_max);
		if (wrong > WRONG_MASK)
			wrong = WRONG_MASK;
		spent = (uint64_t)until_ms << (TAKEN_BITS + WRONG_BITS) |
			(uint64_t)wrong << TAKEN_BITS | taken_n(old);
	} while (!atomic_compare_exchange_weak(budget, &old, spent));
}

/* At most `most_us` ahead. */
static int64_t later(int64_t until_us, int64_t cost, int64_t most_us, int64_t now_us)
{
	until_us = (until_us > now_us ? until_us : now_us) + cost;
	return until_us < now_us + most_us ? until_us : now_us + most_us;
}

static void rate_spend(word *budget, int64_t rate, int64_t now_us)
{
	uint64_t old = atomic_load(budget), spent;

	do
		spent = (uint64_t)later((int64_t)(old >> TAKEN_BITS), cost_us(rate), 3 * SECOND_US,
					now_us)
				<< TAKEN_BITS |
			taken_n(old);
	while (!atomic_compare_exchange_weak(budget, &old, spent));
}

static void spend(struct entry *user, struct entry *peer, const struct request *request,
		  int64_t now_us)
{
	if (user)
		user_spend(&user->budget, now_us / 1000);
	if (peer) {
		rate_spend(&peer->budget, limits.wrong_max, now_us);
		rate_spend(&shared->all, ATTEMPTS_ALL_TIMES * limits.wrong_max, now_us);
	}
	request->responder->codes_wrong_by_us = later(request->responder->codes_wrong_by_us,
						      SECOND_US, BAD_US, now_us);
}

void attempts_end(size_t ticket, const struct request *wrong, int64_t now_us)
{
	struct taken *taken = &shared->taken[mine][ticket];

	if (wrong)
		spend(entry_at(atomic_load(&taken->user)), entry_at(atomic_load(&taken->peer)),
		      wrong, now_us);
	taken_give_back(taken);
}

void attempts_wrong(const struct request *request, int64_t now_us)
{
	spend(user_find(request, 1), peer_find(request, 1), request, now_us);
}
