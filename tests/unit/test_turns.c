/* Connections with input take turns: who comes next, and for how much. */
#include "gateway/listen/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define FLOODS 2000

/* Lines of one cost, some of which are there. */
struct sender {
	struct turn turn;
	struct turns *turns;
	int64_t left;
	int64_t cost;
	int64_t served;
	int leaves; /* with its first line */
};

static int wakes;
static int64_t foreign; /* lines of floods that were served */

static void wake(void *context)
{
	(void)context;
	wakes++;
}

static int serve(struct turn *turn)
{
	struct sender *client = turn->owner;

	while (client->left > 0 && !turn_is_over(turn)) {
		client->left--;
		client->served++;
		foreign++;
		turns_spend(client->turns, client->cost);
		if (client->leaves) {
			turn_leave(turn);
			return 1;
		}
	}
	return client->left > 0;
}

static void client_init(struct sender *client, struct turns *turns, int64_t left, int64_t cost)
{
	*client = (struct sender){ .turns = turns, .left = left, .cost = cost };
	client->turn = (struct turn){ .turns = turns, .serve = serve, .owner = client };
}

static void floods_enter(struct turns *turns, struct sender *floods, int64_t cost)
{
	turns_init(turns, wake, NULL);
	for (int i = 0; i < FLOODS; i++) {
		client_init(&floods[i], turns, 1000000, cost);
		turn_enter(&floods[i].turn);
	}
}

/* Before one that comes when the round has begun, at most the rest of one run is served. */
static void test_one_line_does_not_wait_for_the_round(void **state)
{
	static struct sender floods[FLOODS], one;
	static const int64_t costs[] = { 2, 10, 16, 100 };
	struct turns turns;

	(void)state;
	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
		floods_enter(&turns, floods, costs[i]);
		while (!TAILQ_EMPTY(&turns.fresh)) /* each has had a turn */
			assert_true(turns_run(&turns));
		for (int line = 1; line < 50; line++) {
			if (line == 1)
				client_init(&one, &turns, 0, 2);
			one.left++;
			turn_enter(&one.turn);
			foreign = 0;
			while (one.served < line)
				assert_true(turns_run(&turns));
			/* A turn costs 16, and ends with the line that exceeds it. */
			assert_true(foreign * costs[i] <=
				    (line == 1 ? 0 : FLOODS * (16 + costs[i])) + 2000);
		}
	}
}

/* Senders that have more to send each get the same cost, whatever their lines cost. */
static void test_shares_are_of_cost(void **state)
{
	struct sender clients[3];
	struct turns turns;

	(void)state;
	turns_init(&turns, wake, NULL);
	client_init(&clients[0], &turns, 1000000, 2);
	client_init(&clients[1], &turns, 1000000, 16);
	client_init(&clients[2], &turns, 1000000, 1000);
	for (int i = 0; i < 3; i++)
		turn_enter(&clients[i].turn);
	for (int i = 0; i < 200; i++)
		assert_true(turns_run(&turns));
	for (int i = 1; i < 3; i++) {
		int64_t first = clients[0].served * clients[0].cost;
		int64_t cost = clients[i].served * clients[i].cost;

		assert_in_range(cost, first - 1016, first + 1016);
	}
}

/* One that always has one line only must not starve those that have many. */
static void test_coming_again_and_again(void **state)
{
	static struct sender sparse[FLOODS];
	struct sender busy;
	struct turns turns;

	(void)state;
	turns_init(&turns, wake, NULL);
	client_init(&busy, &turns, 1000000, 2);
	turn_enter(&busy.turn);
	for (int i = 0; i < FLOODS; i++)
		client_init(&sparse[i], &turns, 0, 2);
	for (int run = 0; run < 1000; run++) {
		for (int i = 0; i < FLOODS; i++) {
			sparse[i].left = 1;
			turn_enter(&sparse[i].turn);
		}
		assert_true(turns_run(&turns));
	}
	assert_true(busy.served > 1000);
}

static void test_wakes_once(void **state)
{
	struct sender clients[2];
	struct turns turns;

	(void)state;
	wakes = 0;
	turns_init(&turns, wake, NULL);
	for (int i = 0; i < 2; i++) {
		client_init(&clients[i], &turns, 10, 2);
		turn_enter(&clients[i].turn);
		turn_enter(&clients[i].turn);
	}
	assert_int_equal(wakes, 1);
	assert_false(turns_run(&turns));
	assert_int_equal(clients[0].served + clients[1].served, 20);
	clients[1].left = 1;
	turn_enter(&clients[1].turn);
	assert_int_equal(wakes, 2);
	turn_leave(&clients[1].turn);
	assert_false(turns_run(&turns));
	assert_int_equal(clients[1].left, 1);
}

static void test_leaves_while_it_is_served(void **state)
{
	struct sender clients[2];
	struct turns turns;

	(void)state;
	turns_init(&turns, wake, NULL);
	for (int i = 0; i < 2; i++) {
		client_init(&clients[i], &turns, 10, 2);
		clients[i].leaves = i == 0;
		turn_enter(&clients[i].turn);
	}
	assert_false(turns_run(&turns));
	assert_int_equal(clients[0].served, 1);
	assert_int_equal(clients[1].served, 10);
}

/* Dear lines, one a connection; each is the first of its connection. */
struct dear {
	struct turn turn;
	struct turns *turns;
	int left;
};

static int dear_serve(struct turn *turn)
{
	struct dear *dear = turn->owner;

	if (dear->left == 0 || !turn_affords(turn, 1000))
		return dear->left > 0;
	dear->left--;
	foreign++;
	turns_spend(dear->turns, 1000);
	return 0;
}

/* All that is dear enters before one line that is not, and is served after it. */
static void test_what_is_dear_is_paid_for_in_advance(void **state)
{
	static struct dear dear[FLOODS];
	struct sender one;
	struct turns turns;

	(void)state;
	turns_init(&turns, wake, NULL);
	for (int i = 0; i < FLOODS; i++) {
		dear[i] = (struct dear){ .turns = &turns, .left = 1 };
		dear[i].turn =
			(struct turn){ .turns = &turns, .serve = dear_serve, .owner = &dear[i] };
		turn_enter(&dear[i].turn);
	}
	client_init(&one, &turns, 1, 2);
	turn_enter(&one.turn);
	foreign = 0;
	while (one.left > 0)
		assert_true(turns_run(&turns));
	assert_int_equal(foreign, 1); /* its own */
	while (turns_run(&turns))
		;
	assert_int_equal(foreign, FLOODS + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_line_does_not_wait_for_the_round),
		cmocka_unit_test(test_shares_are_of_cost),
		cmocka_unit_test(test_coming_again_and_again),
		cmocka_unit_test(test_wakes_once),
		cmocka_unit_test(test_leaves_while_it_is_served),
		cmocka_unit_test(test_what_is_dear_is_paid_for_in_advance),
	};

	return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
