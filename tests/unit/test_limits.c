/*
 * Limits of requests: how many are allowed, for how long the others wait, and that all processes
 * together allow no more, also when some of them die.
 */
#include "gateway/auth/limits.h"
#include "tests/unit/dying.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <sched.h>
#include <sys/mman.h>

#define NOW INT64_C(1000000000)
#define SECOND 1000000
#define PROCESSES 4
#define SETS 18725 /* of limits.c: multiples of it share a set */

static int setup(void **state)
{
	(void)state;
	limits_init(PROCESSES);
	return 0;
}

static struct limit limit_of(enum limit_kind kind, uint64_t key, int64_t rate, int64_t burst)
{
	return (struct limit){ .kind = kind, .key = key, .rate = rate, .burst = burst };
}

static struct limit user(uint64_t key)
{
	return limit_of(LIMIT_USER, key, 10, 20);
}

static int64_t take(struct limit limit, int64_t now_us)
{
	return limits_take(&limit, 1, now_us).wait_us;
}

/* How many are allowed now. */
static int64_t taken_all(struct limit limit, int64_t now_us)
{
	int64_t n = 0;

	while (take(limit, now_us) == 0)
		n++;
	return n;
}

static void test_a_burst_and_then_the_rate(void **state)
{
	(void)state;
	assert_int_equal(taken_all(user(1), NOW), 20);
	assert_int_equal(take(user(1), NOW), SECOND / 10);
	assert_int_equal(take(user(1), NOW + SECOND / 10 - 1), 1);
	assert_int_equal(take(user(1), NOW + SECOND / 10), 0);
	assert_int_equal(taken_all(user(1), NOW + SECOND), 9);
	assert_int_equal(taken_all(user(1), NOW + 3600 * INT64_C(1000000)), 20);
	assert_int_equal(taken_all(user(2), NOW), 20);
}

/*
 * A client that asks at every ms for 10 s gets the burst and ten times the rate, and not much more.
 */
static void test_rates(void **state)
{
	static const int64_t rates[] = { 1, 3, 7, 100, 999, 20000, 333333, 600000, 1000000 };

	(void)state;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		struct limit limit = limit_of(LIMIT_KEY, i, rates[i], limit_burst(rates[i]));
		int64_t n = 0, least = limit.burst + 10 * rates[i];

		for (int64_t ms = 0; ms <= 10000; ms++)
			n += taken_all(limit, NOW + ms * 1000);
		assert_in_range(n, least, least + 10 * rates[i] / 1000 + 1);
	}
}

static void test_bursts_by_default(void **state)
{
	(void)state;
	assert_int_equal(limit_burst(1), 20);
	assert_int_equal(limit_burst(10), 20);
	assert_int_equal(limit_burst(100), 200);
}

static void test_kinds_and_no_limit(void **state)
{
	(void)state;
	for (int kind = 0; kind < LIMIT_KINDS; kind++)
		assert_int_equal(taken_all(limit_of((enum limit_kind)kind, 1, 10, 5), NOW), 5);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(take(limit_of(LIMIT_USER, 2, 0, 0), NOW), 0);
	assert_null(limits_take(NULL, 0, NOW).of);
}

/* Keys of 0 and 1 are keys as others. */
static void test_key_0(void **state)
{
	(void)state;
	assert_int_equal(taken_all(user(0), NOW), 20);
	assert_int_equal(taken_all(user(2), NOW), 20);
	assert_int_equal(take(user(SETS), NOW), 0); /* beside 0 in its set */
	assert_int_equal(take(user(0), NOW), SECOND / 10);
}

static void test_nothing_is_taken_when_one_refuses(void **state)
{
	const struct limit both[] = { limit_of(LIMIT_ADDRESS, 7, 10, 20),
				      limit_of(LIMIT_USER, 8, 10, 5) };
	const struct limit turned[] = { both[1], both[0] };
	struct limit_verdict verdict;

	(void)state;
	for (int i = 0; i < 5; i++)
		assert_int_equal(limits_take(both, 2, NOW).wait_us, 0);
	for (int i = 0; i < 1000; i++) {
		verdict = limits_take(i % 2 ? both : turned, 2, NOW);
		assert_int_equal(verdict.wait_us, SECOND / 10);
		assert_int_equal(verdict.of->kind, LIMIT_USER);
		assert_int_equal(verdict.left, 0);
	}
	assert_int_equal(limits_look(both, 1, NOW).left, 15);
	assert_int_equal(taken_all(both[0], NOW), 15);
}

/* The verdict names the limit that refuses for longer. */
static void test_two_that_refuse(void **state)
{
	const struct limit slow = limit_of(LIMIT_ADDRESS, 7, 1, 5), fast = user(8);
	const struct limit both[] = { slow, fast }, turned[] = { fast, slow };

	(void)state;
	taken_all(slow, NOW);
	taken_all(fast, NOW);
	for (int i = 0; i < 2; i++) {
		struct limit_verdict verdict = limits_take(i ? turned : both, 2, NOW);

		assert_int_equal(verdict.wait_us, SECOND);
		assert_int_equal(verdict.of->kind, LIMIT_ADDRESS);
	}
}

static void test_a_look_takes_nothing(void **state)
{
	const struct limit wrong = limit_of(LIMIT_WRONG, 7, LIMIT_WRONG_RATE, LIMIT_WRONG_BURST);

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(limits_look(&wrong, 1, NOW).wait_us, 0);
	assert_int_equal(taken_all(wrong, NOW), LIMIT_WRONG_BURST);
	assert_int_equal(limits_look(&wrong, 1, NOW).wait_us, SECOND / 10);
	assert_int_equal(limits_look(&wrong, 1, NOW + SECOND / 10).wait_us, 0);
}

static void test_what_clients_are_told(void **state)
{
	const struct limit both[] = { limit_of(LIMIT_ADDRESS, 7, 100, 200),
				      limit_of(LIMIT_USER, 8, 7, 20),
				      limit_of(LIMIT_KEY, 9, 0, 0) };
	char policy[LIMIT_POLICY_SIZE], now[LIMIT_STATE_SIZE];
	struct limit_verdict verdict = limits_take(both, 3, NOW);

	(void)state;
	limit_policy_write(both, 3, policy);
	assert_string_equal(policy, "\"address\";q=200;w=2, \"user\";q=20;w=3");
	limit_state_write(&verdict, now);
	assert_string_equal(now, "\"user\";r=19;t=1");
	for (int i = 0; i < 19; i++)
		verdict = limits_take(both, 3, NOW);
	assert_int_equal(verdict.wait_us, 0);
	verdict = limits_take(both, 3, NOW);
	assert_int_equal(limit_retry_after_ms(&verdict), 143); /* 1 s / 7, rounded up */
	limit_state_write(&verdict, now);
	assert_string_equal(now, "\"user\";r=0;t=1");
	/* After what they were told it is allowed. */
	assert_int_equal(limits_take(both, 3, NOW + 143000).wait_us, 0);
}

static void test_the_longest_texts(void **state)
{
	struct limit limits[LIMIT_KINDS];
	char policy[LIMIT_POLICY_SIZE], now[LIMIT_STATE_SIZE];
	struct limit_verdict verdict;

	(void)state;
	for (int i = 0; i < LIMIT_KINDS; i++)
		limits[i] = limit_of((enum limit_kind)i, 7, 1, 60 * LIMIT_RATE_MAX);
	assert_true(limit_policy_write(limits, LIMIT_KINDS, policy) < sizeof(policy));
	verdict = limits_take(limits, LIMIT_KINDS, NOW);
	assert_true(limit_state_write(&verdict, now) < sizeof(now));
	assert_string_equal(now, "\"key\";r=59999999;t=1");
	assert_int_equal(limit_policy_write(NULL, 0, policy), 0);
	verdict = limits_take(NULL, 0, NOW);
	assert_int_equal(limit_state_write(&verdict, now), 0);
	assert_int_equal(limit_retry_after_ms(&verdict), 1);
}

/*
 * More users at once than the table has entries: nobody is refused for them, and who is at the
 * limit stays there.
 */
static void test_a_flood_of_users(void **state)
{
	uint64_t key = 88172645463325252u;
	int64_t left;

	(void)state;
	assert_int_equal(taken_all(user(1), NOW), 20);
	assert_int_equal(take(user(2), NOW), 0);
	for (int i = 0; i < 1000000; i++) {
		key ^= key << 13;
		key ^= key >> 7;
		key ^= key << 17;
		assert_int_equal(take(user(key), NOW), 0);
	}
	assert_int_equal(take(user(1), NOW), SECOND / 10);
	left = taken_all(user(2), NOW);
	assert_in_range(left, 19, 20);
}

/* A time in the past is forgotten without loss: ever new users displace nobody that owes. */
static void test_those_who_owe_nothing_are_forgotten_first(void **state)
{
	(void)state;
	taken_all(user(1), NOW);
	for (int64_t i = 2; i < 1000000; i++)
		assert_int_equal(take(user((uint64_t)i), NOW + i), 0);
	assert_int_equal(take(user(1), NOW + 99999), 1);
}

/* The counts of several processes. */
struct counts {
	atomic_int_least64_t allowed[20000];
	atomic_uint_least64_t turn;
	atomic_int_least64_t steps[PROCESSES];
};

static struct counts *counts_new(void)
{
	struct counts *counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(counts != MAP_FAILED);
	return counts;
}

/* Takes all that there is of the user, each time from the address too. */
static int64_t taken_of_both(uint64_t key, int64_t burst)
{
	const struct limit both[] = { limit_of(LIMIT_ADDRESS, 7, 1, 1000000),
				      limit_of(LIMIT_USER, key, 100, burst) };
	int64_t n = 0;

	while (limits_take(both, 2, NOW).wait_us == 0)
		n++;
	return n;
}

static int64_t burst_of(uint64_t key)
{
	return key == 0 ? 300000 : key % 2 ? 1 : 3;
}

/* All of them begin with a user at about the same time. */
static void test_processes_take_from_one(void **state)
{
	const struct limit address = limit_of(LIMIT_ADDRESS, 7, 1, 1000000);
	struct counts *counts = counts_new();
	int64_t sum = 0;
	int status;

	(void)state;
	for (size_t process = 0; process < PROCESSES; process++) {
		if (fork() > 0)
			continue;
		limits_enter(process);
		for (uint64_t key = 0; key < 20000; key++)
			counts->allowed[key] += taken_of_both(key, burst_of(key));
		_exit(0);
	}
	for (size_t process = 0; process < PROCESSES; process++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	for (size_t key = 0; key < 20000; key++) {
		assert_int_equal(counts->allowed[key], burst_of(key));
		sum += counts->allowed[key];
	}
	assert_int_equal(limits_look(&address, 1, NOW).left, 1000000 - sum);
	munmap(counts, sizeof(*counts));
}

/* One user that is refused all the time, while others take from the same address. */
static void test_what_is_refused_is_not_missing_meanwhile(void **state)
{
	struct counts *counts = counts_new();
	int refused = 0;
	pid_t pid;

	(void)state;
	taken_all(user(1), NOW);
	pid = fork();
	while (pid == 0 && counts->turn < 20000) {
		const struct limit both[] = { limit_of(LIMIT_ADDRESS, counts->turn, 1, 1),
					      user(1) };

		limits_take(both, 2, NOW);
		counts->steps[0]++;
	}
	if (pid == 0)
		_exit(0);
	while (counts->steps[0] == 0)
		sched_yield();
	while (counts->turn < 20000) {
		refused += take(limit_of(LIMIT_ADDRESS, counts->turn, 1, 1), NOW) > 0;
		counts->turn++;
	}
	waitpid(pid, NULL, 0);
	assert_int_equal(refused, 0);
	munmap(counts, sizeof(*counts));
}

#define DEATHS 100

/* Takes all the time: of one user, and of ever new ones. */
static void take_for_ever(struct counts *counts, size_t process)
{
	uint64_t key = ((uint64_t)process << 32) + (uint64_t)getpid() * 1000000;

	limits_enter(process);
	for (;;) {
		struct limit both[] = { limit_of(LIMIT_ADDRESS, 7, 10, 5000), user(key++) };

		counts->allowed[0] += limits_take(both, 2, NOW).wait_us == 0;
		counts->steps[process]++;
	}
}

static pid_t taker_start(struct counts *counts, size_t process)
{
	pid_t pid = fork();

	if (pid == 0)
		take_for_ever(counts, process);
	assert_true(pid > 0);
	return pid;
}

static void test_processes_are_killed(void **state)
{
	struct counts *counts = counts_new();
	pid_t pids[PROCESSES];
	unsigned seed = 1;

	(void)state;
	for (size_t i = 0; i < PROCESSES; i++)
		pids[i] = taker_start(counts, i);
	for (int deaths = 0; deaths < DEATHS; deaths++) {
		size_t i = (size_t)deaths % PROCESSES;
		int64_t before = counts->steps[i], steps = rand_r(&seed) % 100;

		while (counts->steps[i] < before + 1 + steps)
			sched_yield();
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		pids[i] = taker_start(counts, i);
	}
	for (size_t i = 0; i < PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		limits_enter(i);
	}
	/* What was taken and not counted is lost: at most one for each that died. */
	assert_in_range(counts->allowed[0] + taken_all(limit_of(LIMIT_ADDRESS, 7, 10, 5000), NOW),
			5000 - DEATHS - PROCESSES, 5000);
	assert_int_equal(taken_all(limit_of(LIMIT_ADDRESS, 7, 10, 5000), NOW + 501 * SECOND), 5000);
	for (uint64_t key = 0; key < 100000; key++)
		assert_int_equal(taken_all(limit_of(LIMIT_USER, key, 10, 2), NOW + 60 * SECOND), 2);
	munmap(counts, sizeof(*counts));
}

static struct limit died[2]; /* others each time */

static void died_before(void)
{
	static uint64_t key;

	died[0] = limit_of(LIMIT_ADDRESS, ++key, 10, 3);
	died[1] = limit_of(LIMIT_USER, key, 10, 3);
}

static void died_take(void)
{
	limits_enter(1);
	limits_take(died, 2, NOW);
}

static void died_after(void)
{
	limits_enter(1); /* its successor */
	for (size_t i = 0; i < 2; i++) {
		assert_in_range(taken_all(died[i], NOW), 2, 3);
		assert_int_equal(taken_all(died[i], NOW + SECOND), 3);
	}
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRIDE 997 /* they make many instructions of one */
#else
#define STRIDE 29 /* of about 1,800 instructions */
#endif

static void test_a_process_dies_in_the_middle(void **state)
{
	int ended = 0;

	(void)state;
	for (int at = 0; !ended; at += STRIDE) {
		pid_t pid;

		died_before();
		pid = dying_start(died_take);
		if (pid < 0)
			skip();
		for (int i = 0; i < at && !ended; i++)
			ended = dying_step(pid);
		if (!ended)
			dying_kill(pid);
		died_after();
	}
}

#define WAYS 7 /* so many share it before one is forgotten */
#define OWED 5

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TAKE_STRIDE 499
#else
#define TAKE_STRIDE 1
#endif

static uint64_t set_of_take;

static struct limit user_of_set(uint64_t i)
{
	return user(set_of_take + i * SETS);
}

static void first_take(void)
{
	limits_enter(1);
	take(user_of_set(0), NOW);
}

/*
 * A process stands anywhere within a take while another one gives the entry to another user: that
 * take is never counted for him.
 */
static void test_no_request_is_counted_for_another(void **state)
{
	int ended = 0;

	(void)state;
	for (int at = 0; !ended; at += TAKE_STRIDE) {
		pid_t pid;

		set_of_take++;
		take(user_of_set(0), NOW);
		pid = dying_start(first_take);
		if (pid < 0)
			skip();
		for (int i = 0; i < at && !ended; i++)
			ended = dying_step(pid);
		for (uint64_t other = 1; other <= WAYS; other++)
			for (int i = 0; i < OWED; i++)
				assert_int_equal(take(user_of_set(other), NOW), 0);
		if (!ended)
			dying_end(pid);
		/* All of one may be forgotten: for the entry of the first. */
		for (uint64_t other = 1; other <= WAYS; other++)
			assert_in_range(taken_all(user_of_set(other), NOW), 20 - OWED, 20);
	}
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_burst_and_then_the_rate),
		TEST(test_rates),
		TEST(test_bursts_by_default),
		TEST(test_kinds_and_no_limit),
		TEST(test_key_0),
		TEST(test_nothing_is_taken_when_one_refuses),
		TEST(test_two_that_refuse),
		TEST(test_a_look_takes_nothing),
		TEST(test_what_clients_are_told),
		TEST(test_the_longest_texts),
		TEST(test_a_flood_of_users),
		TEST(test_those_who_owe_nothing_are_forgotten_first),
		TEST(test_processes_take_from_one),
		TEST(test_what_is_refused_is_not_missing_meanwhile),
		TEST(test_no_request_is_counted_for_another),
		TEST(test_processes_are_killed),
		TEST(test_a_process_dies_in_the_middle),
	};

	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
