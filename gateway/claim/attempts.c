/*
 * What the wrong codes of an address, and of all, have left is a limit (gateway/auth/limits.h). How
 * many guesses are under way, which may take from it, is a word, and so is all of a user:
 *
 *	user           how many guesses are under way (TAKEN_BITS), how many were wrong (WRONG_BITS)
 *	               and, above them, when its wait is over, in ms
 *	address, all   how many guesses are under way (TAKEN_BITS)
 *
 * A guess that was wrong takes from the limit before it is no longer under way: meanwhile it counts
 * twice, and never not at all.
 *
 * The words of users and addresses are in tables (gateway/auth/word_table.h). An entry may be given
 * to another key when its guesses are all judged. Its word could then be changed for the key
 * before, between two instructions of another process: one wrong code more or less.
 */
#include "gateway/claim/attempts.h"

#include "common/check.h"
#include "common/hash.h"
#include "gateway/auth/limits.h"
#include "gateway/auth/word_table.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define SECOND_US 1000000
#define GOOD_US (5 * SECOND_US) /* a connection in good standing: 5 wrong, and one a second */
#define BAD_US (60 * SECOND_US) /* for no longer is a connection in bad standing */

#define TAKEN_BITS 14
#define TAKEN_MASK ((1u << TAKEN_BITS) - 1)
#define WRONG_BITS 11
#define WRONG_MASK ((1u << WRONG_BITS) - 1)

#define USERS 65536
#define PEERS 16384

/* What a guess under way has taken from: its entries; `in_use` is set first and cleared last. */
struct taken {
	atomic_uint_least32_t in_use, user, peer; /* number of the entry; 0: none */
};

struct shared {
	shared_word all;
	struct taken taken[][ATTEMPTS_TAKEN_MAX]; /* by process */
};

static struct shared *shared;
static struct word_table users, peers;
static struct attempts_limits limits;
static size_t mine, pages_n;

static unsigned taken_n(uint64_t budget)
{
	return (unsigned)(budget & TAKEN_MASK);
}

/* Not one with guesses under way; then the one that is over first. */
static uint64_t budget_rank(uint64_t budget)
{
	return taken_n(budget) > 0 ? WORD_KEPT : budget;
}

static uint64_t budget_fresh(uint64_t budget, int64_t now)
{
	(void)budget;
	(void)now;
	return 0;
}

void attempts_init(size_t processes, const struct attempts_limits *wanted)
{
	static const struct word_rules rules = { .rank = budget_rank, .fresh = budget_fresh };

	word_table_init(&users, USERS, processes, &rules);
	word_table_init(&peers, PEERS, processes, &rules);
	shared = mmap(NULL, sizeof(*shared) + processes * sizeof(shared->taken[0]),
		      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED);
	limits = *wanted;
	pages_n = processes;
	mine = 0;
}

static void give_back(shared_word *budget)
{
	uint64_t old = atomic_load(budget);

	while (taken_n(old) > 0 && !atomic_compare_exchange_weak(budget, &old, old - 1))
		;
}

/* If the process dies between two steps, one is given back twice, or one that was not taken. */
static void taken_give_back(struct taken *taken)
{
	struct word_entry *user = word_numbered(&users, atomic_load(&taken->user));
	struct word_entry *peer = word_numbered(&peers, atomic_load(&taken->peer));

	if (user)
		give_back(&user->word);
	atomic_store(&taken->user, 0);
	if (peer) {
		give_back(&peer->word);
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
	word_table_enter(&users, mine);
	word_table_enter(&peers, mine);
}

static struct word_entry *user_find(const struct request *request, int make)
{
	uint64_t key;

	if (limits.free_max == 0)
		return NULL;
	key = hash_keyed(request->user.text, request->user.len);
	return make ? word_make(&users, key, 0) : word_find(&users, key);
}

static struct word_entry *peer_find(const struct request *request, int make)
{
	uint64_t key = request->responder->peer;

	if (limits.wrong_max == 0)
		return NULL;
	return make ? word_make(&peers, key, 0) : word_find(&peers, key);
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

static int is_good(const struct request *request, int64_t now_us)
{
	return request->responder->codes_wrong_by_us - now_us < GOOD_US;
}

static struct limit peer_limit(const struct request *request, int64_t seconds)
{
	return (struct limit){ .kind = LIMIT_CODES,
			       .key = request->responder->peer,
			       .rate = limits.wrong_max,
			       .burst = seconds * limits.wrong_max };
}

static struct limit all_limit(int64_t seconds)
{
	int64_t rate = ATTEMPTS_ALL_TIMES * limits.wrong_max;

	rate = rate < LIMIT_RATE_MAX ? rate : LIMIT_RATE_MAX;
	return (struct limit){ .kind = LIMIT_CODES, .rate = rate, .burst = seconds * rate };
}

static struct attempt rate_judge(uint64_t budget, struct limit limit, int64_t now_us)
{
	struct limit_verdict verdict = limits_look(&limit, 1, now_us);
	unsigned n = taken_n(budget);

	if (verdict.wait_us > 0)
		return (struct attempt){ .verdict = ATTEMPT_HELD,
					 .wait_ms = limit_retry_after_ms(&verdict) };
	return (struct attempt){ .verdict = n == TAKEN_MASK || n >= verdict.left
						    ? ATTEMPT_WAITS
						    : ATTEMPT_ALLOWED };
}

static struct attempt peer_judge(uint64_t budget, const struct request *request, int64_t now_us)
{
	return rate_judge(budget, peer_limit(request, is_good(request, now_us) ? 2 : 1), now_us);
}

static struct attempt all_judge(uint64_t budget, const struct request *request, int64_t now_us)
{
	if (is_good(request, now_us) && taken_n(budget) < TAKEN_MASK)
		return (struct attempt){ .verdict = ATTEMPT_ALLOWED };
	return rate_judge(budget, all_limit(1), now_us);
}

struct attempt attempts_look(const struct request *request, int64_t now_us)
{
	struct attempt attempt = { .verdict = ATTEMPT_ALLOWED };
	const struct word_entry *user = user_find(request, 0), *peer = peer_find(request, 0);

	if (user)
		attempt = user_judge(atomic_load(&user->word), request, now_us);
	if (attempt.verdict == ATTEMPT_ALLOWED && limits.wrong_max > 0)
		attempt = peer_judge(peer ? atomic_load(&peer->word) : 0, request, now_us);
	if (attempt.verdict == ATTEMPT_ALLOWED && limits.wrong_max > 0)
		attempt = all_judge(atomic_load(&shared->all), request, now_us);
	return attempt;
}

static struct attempt budget_take(shared_word *budget, judge_fn *judge,
				  const struct request *request, int64_t now_us)
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
static struct attempt entry_take(const struct word_table *table, struct word_entry *entry,
				 atomic_uint_least32_t *taken, judge_fn *judge,
				 const struct request *request, int64_t now_us)
{
	struct attempt attempt = { .verdict = ATTEMPT_WAITS }; /* all of its set have guesses */

	if (!entry)
		return attempt;
	atomic_store(taken, word_number(table, entry));
	attempt = budget_take(&entry->word, judge, request, now_us);
	if (attempt.verdict != ATTEMPT_ALLOWED)
		atomic_store(taken, 0);
	return attempt;
}

struct attempt attempts_take(const struct request *request, int64_t now_us)
{
	static size_t ticket; /* the last one that was given */
	struct attempt attempt = { .verdict = ATTEMPT_ALLOWED };
	struct word_entry *peer;
	struct taken *taken;
	size_t tries = 0;

	do {
		check(tries++ < ATTEMPTS_TAKEN_MAX);
		ticket = (ticket + 1) % ATTEMPTS_TAKEN_MAX;
		taken = &shared->taken[mine][ticket];
	} while (atomic_load(&taken->in_use));
	atomic_store(&taken->in_use, 1);

	if (limits.free_max > 0)
		attempt = entry_take(&users, user_find(request, 1), &taken->user, user_judge,
				     request, now_us);

	/* From the address and from all, or from neither. */
	if (attempt.verdict == ATTEMPT_ALLOWED && limits.wrong_max > 0) {
		peer = peer_find(request, 1);
		attempt = entry_take(&peers, peer, &taken->peer, peer_judge, request, now_us);
		if (attempt.verdict == ATTEMPT_ALLOWED) {
			attempt = budget_take(&shared->all, all_judge, request, now_us);
			if (attempt.verdict != ATTEMPT_ALLOWED) {
				atomic_store(&taken->peer, 0);
				give_back(&peer->word);
			}
		}
	}

	if (attempt.verdict != ATTEMPT_ALLOWED)
		taken_give_back(taken);
	attempt.ticket = ticket;
	return attempt;
}

static void spend(struct word_entry *user, const struct request *request, int64_t now_us)
{
	/* More than what may be spent at once: guesses that were not taken for may owe it. */
	const struct limit of_peer = peer_limit(request, 3), of_all = all_limit(3);
	int64_t by_us = request->responder->codes_wrong_by_us, now_ms = now_us / 1000;
	uint64_t old = user ? atomic_load(&user->word) : 0, spent;

	/* Count one wrong code more of the user, and begin the wait after it. */
	while (user) {
		int64_t wrong = user_wrong(old, now_ms) + 1, until_ms = now_ms;
		int64_t wait_ms = ATTEMPTS_FIRST_WAIT_MS;

		for (int64_t n = wrong;
		     n > limits.free_max + 1 && wait_ms < ATTEMPTS_LONGEST_WAIT_MS; n--)
			wait_ms *= 2;
		if (wait_ms > ATTEMPTS_LONGEST_WAIT_MS)
			wait_ms = ATTEMPTS_LONGEST_WAIT_MS;
		if (wrong > limits.free_max)
			until_ms += wait_ms;
		if (wrong > WRONG_MASK)
			wrong = WRONG_MASK;
		spent = (uint64_t)until_ms << (TAKEN_BITS + WRONG_BITS) |
			(uint64_t)wrong << TAKEN_BITS | taken_n(old);
		if (atomic_compare_exchange_weak(&user->word, &old, spent))
			break;
	}
	if (limits.wrong_max > 0) {
		limits_take(&of_peer, 1, now_us);
		limits_take(&of_all, 1, now_us);
	}
	by_us = (by_us > now_us ? by_us : now_us) + SECOND_US;
	request->responder->codes_wrong_by_us = by_us < now_us + BAD_US ? by_us : now_us + BAD_US;
}

void attempts_end(size_t ticket, const struct request *wrong, int64_t now_us)
{
	struct taken *taken = &shared->taken[mine][ticket];

	if (wrong)
		spend(word_numbered(&users, atomic_load(&taken->user)), wrong, now_us);
	taken_give_back(taken);
}

void attempts_wrong(const struct request *request, int64_t now_us)
{
	spend(user_find(request, 1), request, now_us);
}
