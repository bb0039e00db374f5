/* Requests that wait: whose turn it is, and who has no place. */
#include "gateway/claim/fair_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MAX 6

static struct responder connections[] = {
	{ .peer = 1 }, { .peer = 1 }, { .peer = 2 }, { .peer = 3 }
};
static struct request requests[32];
static struct fair_queue *queue;
static size_t made;

static int setup(void **state)
{
	(void)state;
	queue = fair_queue_new(MAX);
	made = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	while (fair_queue_take(queue))
		;
	assert_int_equal(fair_queue_count(queue), 0);
	free(queue);
	return 0;
}

/* Adds a request of each connection of `text`; returns the connections that lost one, in order. */
static const char *add(const char *text)
{
	static char lost[32];
	size_t n = 0;

	for (; *text; text++) {
		struct request *request = &requests[made++], *refused;

		request->responder = &connections[*text - 'a'];
		refused = fair_queue_add(queue, request);
		if (refused)
			lost[n++] = (char)('a' + (refused->responder - connections));
	}
	lost[n] = '\0';
	return lost;
}

static const char *all(void)
{
	static char taken[32];
	struct request *request;
	size_t n = 0;

	while ((request = fair_queue_take(queue)))
		taken[n++] = (char)('a' + (request->responder - connections));
	taken[n] = '\0';
	return taken;
}

static void test_in_turn(void **state)
{
	(void)state;
	assert_string_equal(add("aaabcd"), "");
	assert_int_equal(fair_queue_count(queue), 6);
	/* a and b have one address */
	assert_string_equal(all(), "acdbaa");
	assert_int_equal(fair_queue_count(queue), 0);
	assert_string_equal(all(), "");
}

static void test_one_connection_fills_it(void **state)
{
	(void)state;
	assert_string_equal(add("aaaaaaaa"), "aa");
	assert_string_equal(add("bcd"), "aaa");
	assert_string_equal(all(), "cdbaaa");
}

static void test_one_address_fills_it(void **state)
{
	(void)state;
	assert_string_equal(add("abababab"), "ab");
	assert_string_equal(add("cc"), "ab");
	/* until each address has two */
	assert_string_equal(add("ddd"), "abd");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_in_turn), TEST(test_one_connection_fills_it),
					    TEST(test_one_address_fills_it) };

	return cmocka_run_group_tests_name("fair queue", tests, NULL, NULL);
}
