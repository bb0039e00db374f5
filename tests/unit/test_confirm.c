/*
 * The confirm window: every message ends once, in the order of its tag, with the broker's reply.
 */
#include "common/rabbit/rabbit_publisher.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ITEMS 2000

static char items[ITEMS]; /* item i is &items[i] */
static int ended[ITEMS];  /* how often */
static enum confirm_result results[ITEMS];
static size_t order[ITEMS], order_n;

static void done(void *context, void *item, enum confirm_result result)
{
	size_t i = (size_t)((char *)item - items);

	assert_ptr_equal(context, items);
	assert_true(i < ITEMS && order_n < ITEMS);
	ended[i]++;
	results[i] = result;
	order[order_n++] = i;
}

static int setup(void **state)
{
	memset(ended, 0, sizeof(ended));
	order_n = 0;
	*state = confirm_new(done, items);
	return 0;
}

static int teardown(void **state)
{
	confirm_free(*state);
	return 0;
}

static void push(struct confirm_window *window, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++)
		confirm_push(window, &items[i]);
}

static void order_expect(size_t n, const size_t *wanted)
{
	assert_int_equal(order_n, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(order[i], wanted[i]);
}

static void test_single(void **state)
{
	struct confirm_window *window = *state;

	assert_true(confirm_push(window, &items[0]) == 1);
	assert_true(confirm_push(window, &items[1]) == 2);
	assert_true(confirm_push(window, &items[2]) == 3);
	assert_int_equal(confirm_open(window), 3);
	assert_int_equal(confirm_settle(window, 2, 0, CONFIRM_DONE), 0);
	assert_int_equal(confirm_settle(window, 1, 0, CONFIRM_NACKED), 0);
	assert_int_equal(confirm_open(window), 1);
	order_expect(2, (size_t[]){ 1, 0 });
	assert_int_equal(results[1], CONFIRM_DONE);
	assert_int_equal(results[0], CONFIRM_NACKED);
	assert_int_equal(ended[2], 0);
}

static void test_multiple(void **state)
{
	struct confirm_window *window = *state;

	push(window, 0, 6);
	confirm_settle(window, 2, 0, CONFIRM_NACKED);
	assert_int_equal(confirm_settle(window, 4, 1, CONFIRM_DONE), 0);
	order_expect(4, (size_t[]){ 1, 0, 2, 3 });
	assert_int_equal(results[1], CONFIRM_NACKED);
	assert_int_equal(confirm_open(window), 2);
	/* Tag 0 means all messages published so far. */
	assert_int_equal(confirm_settle(window, 0, 1, CONFIRM_DONE), 0);
	assert_int_equal(order_n, 6);
	assert_int_equal(confirm_open(window), 0);
	assert_int_equal(confirm_settle(window, 0, 1, CONFIRM_DONE), -1);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(ended[i], 1);
}

static void test_out_of_range(void **state)
{
	struct confirm_window *window = *state;

	assert_int_equal(confirm_settle(window, 0, 0, CONFIRM_DONE), -1);
	assert_int_equal(confirm_settle(window, 1, 0, CONFIRM_DONE), -1);
	assert_int_equal(confirm_settle(window, 1, 1, CONFIRM_DONE), -1);
	push(window, 0, 3);
	assert_int_equal(confirm_settle(window, 4, 0, CONFIRM_DONE), -1);
	assert_int_equal(confirm_settle(window, 4, 1, CONFIRM_DONE), -1);
	assert_int_equal(confirm_settle(window, UINT64_MAX, 0, CONFIRM_DONE), -1);
	assert_int_equal(confirm_settle(window, 0, 0, CONFIRM_DONE), -1);
	assert_int_equal(confirm_settle(window, 2, 0, CONFIRM_DONE), 0);
	assert_int_equal(confirm_settle(window, 2, 0, CONFIRM_DONE), -1); /* twice */
	assert_int_equal(confirm_settle(window, 1, 0, CONFIRM_DONE), 0);
	assert_int_equal(confirm_settle(window, 1, 1, CONFIRM_DONE), -1); /* the window is empty */
	assert_int_equal(order_n, 2);
	assert_int_equal(confirm_open(window), 1);
}

static int same(const void *item, const void *wanted)
{
	return item == wanted;
}

/* A returned message is confirmed as well: it must not count as done. */
static void test_return_then_ack(void **state)
{
	struct confirm_window *window = *state;

	push(window, 0, 3);
	assert_int_equal(confirm_return(window, same, &items[1]), 0);
	assert_int_equal(order_n, 0);
	assert_int_equal(confirm_return(window, same, &items[1]), -1);
	assert_int_equal(confirm_return(window, same, &items[9]), -1);
	confirm_settle(window, 3, 1, CONFIRM_DONE);
	assert_int_equal(results[0], CONFIRM_DONE);
	assert_int_equal(results[1], CONFIRM_RETURNED);
	assert_int_equal(results[2], CONFIRM_DONE);
	assert_int_equal(confirm_return(window, same, &items[2]), -1);
	/* The mark does not stay on the entry of the ring. */
	push(window, 10, 300);
	confirm_settle(window, 0, 1, CONFIRM_DONE);
	for (size_t i = 10; i < 310; i++)
		assert_int_equal(results[i], CONFIRM_DONE);
}

static void test_return_by_tag(void **state)
{
	struct confirm_window *window = *state;

	push(window, 0, 3);
	assert_int_equal(confirm_return_tag(window, 0), -1);
	assert_int_equal(confirm_return_tag(window, 4), -1);
	assert_int_equal(confirm_return_tag(window, 2), 0);
	assert_int_equal(confirm_return_tag(window, 2), -1); /* twice */
	confirm_settle(window, 1, 0, CONFIRM_DONE);
	assert_int_equal(confirm_return_tag(window, 1), -1); /* settled */
	confirm_settle(window, 3, 1, CONFIRM_DONE);
	assert_int_equal(results[1], CONFIRM_RETURNED);
	assert_int_equal(results[2], CONFIRM_DONE);
}

/* The ring grows while its beginning is in the middle. */
static void test_growth_with_wrap_around(void **state)
{
	struct confirm_window *window = *state;

	push(window, 0, 200);
	confirm_settle(window, 150, 1, CONFIRM_DONE);
	push(window, 200, 1000);
	assert_int_equal(confirm_open(window), 1050);
	confirm_settle(window, 700, 0, CONFIRM_NACKED);
	confirm_settle(window, 0, 1, CONFIRM_DONE);
	assert_int_equal(confirm_open(window), 0);
	for (size_t i = 0; i < 1200; i++) {
		assert_int_equal(ended[i], 1);
		assert_int_equal(results[i], i == 699 ? CONFIRM_NACKED : CONFIRM_DONE);
	}
}

/* A message that stays open keeps its entry in the ring; the others end. */
static void test_one_stays_open(void **state)
{
	struct confirm_window *window = *state;

	confirm_push(window, &items[0]);
	for (size_t i = 1; i < 1000; i++) {
		uint64_t tag = confirm_push(window, &items[i]);

		assert_true(tag == i + 1);
		assert_int_equal(confirm_settle(window, tag, 0, CONFIRM_DONE), 0);
	}
	assert_int_equal(confirm_open(window), 1);
	assert_int_equal(ended[0], 0);
	assert_int_equal(confirm_settle(window, 1, 0, CONFIRM_DONE), 0);
	assert_int_equal(confirm_open(window), 0);
	assert_true(confirm_push(window, &items[1000]) == 1001);
}

static void test_reset(void **state)
{
	struct confirm_window *window = *state;

	push(window, 0, 5);
	confirm_settle(window, 3, 0, CONFIRM_DONE);
	confirm_return(window, same, &items[4]);
	confirm_reset(window);
	order_expect(5, (size_t[]){ 2, 0, 1, 3, 4 });
	assert_int_equal(results[0], CONFIRM_LOST);
	assert_int_equal(results[4], CONFIRM_RETURNED);
	assert_int_equal(confirm_open(window), 0);
	/* A tag of the old channel is unknown on the new one until it is used again. */
	assert_int_equal(confirm_settle(window, 2, 0, CONFIRM_DONE), -1);
	assert_true(confirm_push(window, &items[7]) == 1);
	assert_int_equal(confirm_settle(window, 1, 0, CONFIRM_DONE), 0);
	assert_int_equal(results[7], CONFIRM_DONE);
	confirm_reset(window);
	assert_int_equal(order_n, 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_single, setup, teardown),
		cmocka_unit_test_setup_teardown(test_multiple, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_range, setup, teardown),
		cmocka_unit_test_setup_teardown(test_return_then_ack, setup, teardown),
		cmocka_unit_test_setup_teardown(test_return_by_tag, setup, teardown),
		cmocka_unit_test_setup_teardown(test_growth_with_wrap_around, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_stays_open, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reset, setup, teardown),
	};

	return cmocka_run_group_tests_name("confirm", tests, NULL, NULL);
}
