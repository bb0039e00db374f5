/*
 * Budgets of wrong exchange codes: who is refused, who waits, and for how long. Here one process
 * enters as each of those of a gateway in turn.
 */
#include "gateway/auth/limits.h"
#include "gateway/claim/attempts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FREE 3
#define RATE 10
#define US 1000 /* in a ms */
#define GOOD 0
#define BAD (INT64_MAX / 2) /* a connection in bad standing */

/* The guess of the user `number` over an own connection, from the address `peer`. */
struct one {
	struct responder responder;
	struct request guess;
};

static struct one *one_of(int64_t number, uint64_t peer, int64_t standing)
{
	static struct one one;

	one.responder = (struct responder){ .peer = peer, .codes_wrong_by_us = standing };
	one.guess.user = user_id_of_number(number);
	one.guess.responder = &one.responder;
	return &one;
}

/* Each user has an address of its own. */
static const struct request *user(int64_t number)
{
	return &one_of(number, (uint64_t)number, GOOD)->guess;
}

static int setup(void **state)
{
	(void)state;
	limits_init(3);
	attempts_init(3, &(struct attempts_limits){ .free_max = FREE, .wrong_max = RATE });
	return 0;
}

static void assert_held(struct attempt attempt, int64_t wait_ms)
{
	assert_int_equal(attempt.verdict, ATTEMPT_HELD);
	assert_int_equal(attempt.wait_ms, wait_ms);
}

/* The verdict that both functions give; what it takes is given back. */
static struct attempt verdict(const struct request *guess, int64_t now_ms)
{
	struct attempt looked = attempts_look(guess, now_ms * US);
	struct attempt taken = attempts_take(guess, now_ms * US);

	assert_int_equal(looked.verdict, taken.verdict);
	assert_int_equal(looked.wait_ms, taken.wait_ms);
	if (taken.verdict == ATTEMPT_ALLOWED)
		attempts_end(taken.ticket, NULL, now_ms * US);
	return taken;
}

static int64_t wait_of(int64_t number, int64_t now_ms)
{
	struct attempt attempt = verdict(user(number), now_ms);

	assert_int_not_equal(attempt.verdict, ATTEMPT_WAITS);
	return attempt.wait_ms;
}

static size_t take(const struct request *guess, int64_t now_ms)
{
	struct attempt attempt = attempts_take(guess, now_ms * US);

	assert_int_equal(attempt.verdict, ATTEMPT_ALLOWED);
	return attempt.ticket;
}

static void wrong(int64_t number, int64_t now_ms)
{
	const struct request *guess = user(number);

	attempts_end(take(guess, now_ms), guess, now_ms * US);
}

static void test_a_few_cost_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < FREE; i++)
		wrong(1, 1000);
	assert_int_equal(wait_of(1, 1000), 0);
	wrong(1, 1000);
	assert_int_equal(wait_of(1, 1000), 1000);
	assert_int_equal(wait_of(1, 1999), 1);
	assert_int_equal(wait_of(1, 2000), 0);
	assert_int_equal(wait_of(2, 1000), 0);
}

static void test_each_wait_is_twice_as_long_up_to_an_hour(void **state)
{
	int64_t now_ms = 1000, expected = 1000;

	(void)state;
	for (int i = 0; i < FREE; i++)
		wrong(1, now_ms);
	for (int i = 0; i < 20; i++) {
		wrong(1, now_ms);
		assert_int_equal(wait_of(1, now_ms), expected);
		now_ms += expected;
		assert_int_equal(wait_of(1, now_ms), 0);
		expected = expected * 2 < 3600000 ? expected * 2 : 3600000;
	}
	for (int i = 0; i < 3000; i++) { /* more than are counted */
		attempts_wrong(user(1), now_ms * US);
		assert_int_equal(wait_of(1, now_ms), 3600000);
	}
}

static void test_an_hour_later_all_is_forgotten(void **state)
{
	(void)state;
	for (int i = 0; i < FREE + 1; i++)
		wrong(1, 1000);
	wrong(1, 2000);
	assert_int_equal(wait_of(1, 2000), 2000);
	wrong(1, 4000 + ATTEMPTS_FORGET_MS);
	assert_int_equal(wait_of(1, 4000 + ATTEMPTS_FORGET_MS), 4000);
	wrong(1, 9000 + 2 * ATTEMPTS_FORGET_MS);
	assert_int_equal(wait_of(1, 9000 + 2 * ATTEMPTS_FORGET_MS), 0);
}

/* As many at once as cost nothing; what comes then waits for their end, and is not refused. */
static void test_guesses_under_way(void **state)
{
	size_t tickets[FREE];

	(void)state;
	for (int i = 0; i < FREE; i++)
		tickets[i] = take(user(1), 1000);
	assert_int_equal(verdict(user(1), 1000).verdict, ATTEMPT_WAITS);
	assert_int_equal(wait_of(2, 1000), 0);
	attempts_end(tickets[0], NULL, 1000 * US); /* it was right */
	assert_int_equal(wait_of(1, 1000), 0);
	attempts_end(tickets[1], user(1), 1000 * US);
	attempts_end(tickets[2], user(1), 1000 * US);
	wrong(1, 1000);
	/* from now on one at a time */
	tickets[0] = take(user(1), 1000);
	assert_int_equal(verdict(user(1), 1000).verdict, ATTEMPT_WAITS);
	attempts_end(tickets[0], user(1), 1000 * US);
	assert_int_equal(wait_of(1, 1000), 1000);
}

static void test_right_codes_cost_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < 10000; i++)
		assert_int_equal(wait_of(1, 1000), 0);
}

/* Wrong codes of ever new users from one address. */
static void test_an_address_in_bad_standing(void **state)
{
	int64_t number = 100;

	(void)state;
	for (int i = 0; i < RATE; i++) {
		struct one *one = one_of(number++, 7, BAD);

		attempts_end(take(&one->guess, 5000), &one->guess, 5000 * US);
	}
	assert_held(verdict(&one_of(number, 7, BAD)->guess, 5000), 100);
	assert_int_equal(verdict(&one_of(number, 8, BAD)->guess, 5000).verdict, ATTEMPT_ALLOWED);
	/* Another connection from there, in good standing. */
	assert_int_equal(verdict(&one_of(number, 7, GOOD)->guess, 5000).verdict, ATTEMPT_ALLOWED);
	assert_int_equal(verdict(&one_of(number, 7, BAD)->guess, 5100).verdict, ATTEMPT_ALLOWED);
	/* New connections all the time have a bound too. */
	for (int i = 0; i < RATE; i++) {
		struct one *one = one_of(number++, 7, GOOD);

		attempts_end(take(&one->guess, 5000), &one->guess, 5000 * US);
	}
	assert_held(verdict(&one_of(number, 7, GOOD)->guess, 5000), 100);
}

/* Codes that Redis finds wrong, of an address from which no guess is under way. */
static void test_wrong_codes_that_were_not_taken_for(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * RATE; i++)
		attempts_wrong(&one_of(i, 7, BAD)->guess, 5000 * US);
	assert_held(attempts_look(&one_of(99, 7, BAD)->guess, 5000 * US), 1100);
	assert_held(verdict(&one_of(99, 7, GOOD)->guess, 5000), 100);
	for (int i = 0; i < 10 * RATE; i++)
		attempts_wrong(&one_of(i, 7, BAD)->guess, 5000 * US);
	assert_held(verdict(&one_of(99, 7, BAD)->guess, 5000), 2100); /* no longer */
}

static void test_the_standing_of_a_connection(void **state)
{
	struct one one = *one_of(1, 7, GOOD);

	(void)state;
	one.guess.responder = &one.responder;
	for (int i = 0; i < 6; i++)
		attempts_wrong(&one.guess, 1000 * US);
	assert_int_equal(one.responder.codes_wrong_by_us, 7000 * US);
	for (int i = 0; i < 100; i++)
		attempts_wrong(&one.guess, 1000 * US);
	assert_int_equal(one.responder.codes_wrong_by_us, 61000 * US);
}

/* What all addresses together have spent holds back those that were wrong, and nobody else. */
static void test_of_all(void **state)
{
	int64_t number = 100;

	(void)state;
	for (int i = 0; i < RATE * ATTEMPTS_ALL_TIMES; i++) {
		struct one *one = one_of(number, (uint64_t)number, BAD);

		number++;
		attempts_end(take(&one->guess, 5000), &one->guess, 5000 * US);
	}
	assert_held(verdict(&one_of(number, 7, BAD)->guess, 5000), 10);
	assert_int_equal(verdict(&one_of(number, 7, GOOD)->guess, 5000).verdict, ATTEMPT_ALLOWED);
	/* What was held back has taken nothing from its address. */
	for (int i = 0; i < RATE; i++)
		take(&one_of(i, 7, BAD)->guess, 60000);
}

static void test_an_address_waits_for_its_guesses_under_way(void **state)
{
	size_t tickets[RATE];

	(void)state;
	for (int i = 0; i < RATE; i++)
		tickets[i] = take(&one_of(i, 7, BAD)->guess, 1000);
	assert_int_equal(verdict(&one_of(99, 7, BAD)->guess, 1000).verdict, ATTEMPT_WAITS);
	for (int i = 0; i < RATE; i++)
		attempts_end(tickets[i], NULL, 1000 * US);
	assert_int_equal(verdict(&one_of(99, 7, BAD)->guess, 1000).verdict, ATTEMPT_ALLOWED);
}

static void test_processes_share_the_budgets(void **state)
{
	(void)state;
	for (size_t process = 0; process < FREE; process++) {
		attempts_enter(process);
		wrong(1, 1000);
	}
	attempts_enter(0);
	wrong(1, 1000);
	attempts_enter(1);
	assert_int_equal(wait_of(1, 1000), 1000);
}

static void test_a_process_dies_with_guesses(void **state)
{
	(void)state;
	attempts_enter(1);
	for (int i = 0; i < FREE; i++)
		take(user(1), 1000);
	attempts_enter(0);
	assert_int_equal(verdict(user(1), 1000).verdict, ATTEMPT_WAITS);
	attempts_enter(1); /* its successor */
	assert_int_equal(wait_of(1, 1000), 0);
	for (int i = 0; i < FREE; i++)
		take(user(1), 1000);
}

/* The table is bounded: many others that were wrong displace those whose wait is over first. */
static void test_more_users_than_are_remembered(void **state)
{
	(void)state;
	attempts_init(1, &(struct attempts_limits){ .free_max = FREE });
	for (int i = 0; i < FREE + 5; i++)
		attempts_wrong(user(1), 1000 * US);
	assert_int_equal(wait_of(1, 1000), 16000);
	for (int64_t i = 2; i < 300000; i++)
		wrong(i, 1000);
	assert_int_equal(wait_of(1, 1000), 16000);
	assert_int_equal(wait_of(299999, 1000), 0);
}

static void test_without_limits(void **state)
{
	(void)state;
	attempts_init(1, &(struct attempts_limits){ 0 });
	for (int i = 0; i < 10000; i++)
		wrong(1, 1000);
	assert_int_equal(wait_of(1, 1000), 0);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_few_cost_nothing),
		TEST(test_each_wait_is_twice_as_long_up_to_an_hour),
		TEST(test_an_hour_later_all_is_forgotten),
		TEST(test_guesses_under_way),
		TEST(test_right_codes_cost_nothing),
		TEST(test_an_address_in_bad_standing),
		TEST(test_wrong_codes_that_were_not_taken_for),
		TEST(test_the_standing_of_a_connection),
		TEST(test_of_all),
		TEST(test_an_address_waits_for_its_guesses_under_way),
		TEST(test_processes_share_the_budgets),
		TEST(test_a_process_dies_with_guesses),
		TEST(test_more_users_than_are_remembered),
		TEST(test_without_limits),
	};

	return cmocka_run_group_tests_name("attempts", tests, NULL, NULL);
}
