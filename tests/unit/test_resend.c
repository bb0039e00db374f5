/* When the messages of an outbox are published again: keeper/resend.h with a virtual clock. */
#include "keeper/resend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define AFTER_MS 3000
#define START_MS 1000000

static struct resend *resend;
static int64_t now_ms;
static struct resend_coupon coupon;

static int setup(void **state)
{
	(void)state;
	resend = resend_new(AFTER_MS);
	now_ms = START_MS;
	coupon = (struct resend_coupon){
		.id = 7, .generation = 2, .seq = 100, .seq_seen = 50, .settled = 50, .outbox_n = 10
	};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	resend_free(resend);
	return 0;
}

static struct resend_pass *look(void)
{
	return resend_look(resend, &coupon, now_ms);
}

/* Looks every 100 ms for so long, with this many messages in the queue; the first pass, or NULL. */
static struct resend_pass *wait_for(int64_t ms, int64_t ready)
{
	for (int64_t until_ms = now_ms + ms; now_ms < until_ms; now_ms += 100) {
		struct resend_pass *pass;

		resend_ready(resend, RESEND_RECEIVES, ready, now_ms);
		pass = look();
		if (pass)
			return pass;
	}
	return NULL;
}

/* A whole pass that publishes something. */
static void pass_make(struct resend_pass *pass)
{
	pass->sent = 1;
	resend_pass_end(resend, &coupon, now_ms);
}

static void test_empty_queue(void **state)
{
	struct resend_pass *pass = wait_for(60000, 0);

	(void)state;
	assert_non_null(pass);
	assert_int_equal(now_ms, START_MS + AFTER_MS);
	assert_int_equal(pass->kind, RESEND_ALL);
	assert_true(resend_covers(resend, pass, 2, 1000000, AFTER_MS + 1));
	assert_string_equal(pass->cursor, "0");
}

static void test_age(void **state)
{
	struct resend_pass *pass = wait_for(60000, 0);

	(void)state;
	assert_non_null(pass);
	assert_false(resend_covers(resend, pass, 2, 60, AFTER_MS));
	assert_false(resend_covers(resend, pass, 2, 60, -AFTER_MS));
	assert_true(resend_covers(resend, pass, 2, 60, -AFTER_MS - 1)); /* the clock was set back */
}

static void test_unknown_length(void **state)
{
	(void)state;
	coupon.seq_seen = coupon.settled = 0;
	for (; now_ms < START_MS + 600000; now_ms += 1000)
		assert_null(look());
}

static void test_slow_queue(void **state)
{
	(void)state;
	coupon.seq_seen = coupon.settled = 0;
	assert_null(wait_for(3600000, 1));
	assert_null(wait_for(3600000, 1000000));
}

static void test_a_queue_that_was_empty_only_for_a_moment(void **state)
{
	(void)state;
	coupon.seq_seen = coupon.settled = 0;
	for (int i = 0; i < 100; i++) {
		assert_null(wait_for(AFTER_MS - 100, 0));
		assert_null(wait_for(100, 1));
	}
}

static void test_an_empty_queue_while_the_workers_settle(void **state)
{
	(void)state;
	coupon.seq_seen = 0; /* nothing is overtaken */
	for (int i = 0; i < 10; i++) {
		coupon.settled++;
		assert_null(wait_for(AFTER_MS, 0));
	}
	assert_non_null(wait_for(200, 0));
}

static void test_overtaken(void **state)
{
	struct resend_pass *pass;

	(void)state;
	coupon.seq_seen = coupon.settled = 80;
	assert_null(wait_for(2 * AFTER_MS - 100, 5));
	coupon.seq_seen = coupon.settled = 90;
	pass = wait_for(60000, 5);
	assert_non_null(pass);
	assert_int_equal(pass->kind, RESEND_OVERTAKEN);
	assert_true(
		resend_covers(resend, pass, 1, 1000, AFTER_MS + 1)); /* of an older generation */
	assert_true(resend_covers(resend, pass, 2, 80, AFTER_MS + 1));
	assert_false(
		resend_covers(resend, pass, 2, 81, AFTER_MS + 1)); /* settled, but not for long */
	assert_false(resend_covers(resend, pass, 3, 1, AFTER_MS + 1));
}

static void test_overtaken_again(void **state)
{
	struct resend_pass *pass = wait_for(60000, 5);

	(void)state;
	assert_non_null(pass);
	pass_make(pass);
	/* Their copies wait in the queue behind what was accepted before. */
	for (int i = 0; i < 40; i++) {
		coupon.settled = ++coupon.seq_seen;
		assert_null(wait_for(5000, 5));
	}
	coupon.seq_seen = coupon.seq; /* the last receive before the copies */
	assert_null(wait_for(2 * AFTER_MS - 100, 5));
	pass = wait_for(60000, 5);
	assert_non_null(pass);
	assert_true(resend_covers(resend, pass, 2, coupon.seq, AFTER_MS + 1));
}

static void test_pauses(void **state)
{
	int64_t last_ms, pauses_ms[12];

	(void)state;
	for (int i = 0; i < 12; i++) {
		struct resend_pass *pass;

		last_ms = now_ms;
		pass = wait_for(2 * RESEND_PAUSE_LONGEST_MS, 0);
		assert_non_null(pass);
		pauses_ms[i] = now_ms - last_ms;
		pass_make(pass);
	}
	for (int i = 1; i < 8; i++)
		assert_int_equal(pauses_ms[i], AFTER_MS << (i - 1));
	assert_int_equal(pauses_ms[11], RESEND_PAUSE_LONGEST_MS);
	/* Something is settled: the pause is cut. */
	coupon.settled++;
	last_ms = now_ms;
	assert_non_null(wait_for(2 * RESEND_PAUSE_LONGEST_MS, 0));
	assert_int_equal(now_ms - last_ms, AFTER_MS);
}

static void test_new_connection(void **state)
{
	int64_t last_ms;

	(void)state;
	coupon.seq_seen = coupon.settled = 0;
	for (int i = 0; i < 12; i++)
		pass_make(wait_for(2 * RESEND_PAUSE_LONGEST_MS, 0));
	last_ms = now_ms;
	resend_connected(resend);
	assert_non_null(wait_for(60000, 0));
	assert_int_equal(now_ms - last_ms, AFTER_MS);
}

static void test_a_pass_that_found_nothing_does_not_lengthen_the_pause(void **state)
{
	(void)state;
	for (int i = 0; i < 12; i++) {
		int64_t last_ms = now_ms;

		assert_non_null(wait_for(60000, 0));
		assert_int_equal(now_ms - last_ms, AFTER_MS);
		resend_pass_end(resend, &coupon, now_ms);
	}
}

/* The pause after a pass that has worked and waited for so long, with this much left to send. */
static int64_t pause_after(int64_t work_ms, int64_t waited_ms, int64_t outbox_n)
{
	struct resend_pass *pass = wait_for(60000, 0);
	int64_t last_ms;

	assert_non_null(pass);
	pass->work_ms += work_ms;
	now_ms += work_ms + waited_ms;
	assert_ptr_equal(look(), pass); /* it goes on */
	resend_pass_end(resend, &coupon, now_ms);
	coupon.outbox_n = outbox_n;
	last_ms = now_ms;
	assert_non_null(wait_for(2 * RESEND_PAUSE_LONGEST_MS, 0));
	return now_ms - last_ms;
}

static void test_a_long_pass_is_followed_by_a_long_pause(void **state)
{
	(void)state;
	assert_int_equal(pause_after(10000, 0, coupon.outbox_n), 10000 * RESEND_WORK_SHARE);
}

/* It waited for a broker that stood still. */
static void test_a_pass_that_waited_is_followed_by_a_short_pause(void **state)
{
	(void)state;
	assert_in_range(pause_after(100, 60000, coupon.outbox_n), 100 * RESEND_WORK_SHARE,
			2 * AFTER_MS);
}

static void test_a_pass_that_leaves_little_is_followed_by_a_short_pause(void **state)
{
	(void)state;
	coupon.outbox_n = 18000;
	assert_int_equal(pause_after(5000, 0, 900), 5000 * RESEND_WORK_SHARE / 20);
}

static void test_no_pause_is_longer_than_the_longest(void **state)
{
	(void)state;
	assert_int_equal(pause_after(60000, 0, coupon.outbox_n), RESEND_PAUSE_LONGEST_MS);
}

static void test_a_pass_goes_on(void **state)
{
	struct resend_pass *pass = wait_for(60000, 0);

	(void)state;
	strcpy(pass->cursor, "17");
	resend_ready(resend, RESEND_RECEIVES, 100, now_ms); /* by what it publishes */
	now_ms += 500;
	pass = look();
	assert_non_null(pass);
	assert_string_equal(pass->cursor, "17");
	resend_forget(resend, coupon.id);
	assert_null(look());
}

static void test_a_new_generation(void **state)
{
	struct resend_pass *pass = wait_for(60000, 5);

	(void)state;
	pass_make(pass);
	coupon.generation = 3;
	coupon.seq = 20;
	coupon.seq_seen = coupon.settled = 10;
	pass = wait_for(60000, 5);
	assert_non_null(pass);
	assert_true(resend_covers(resend, pass, 2, 1000000, AFTER_MS + 1));
	assert_true(resend_covers(resend, pass, 3, 10, AFTER_MS + 1));
	assert_false(resend_covers(resend, pass, 3, 11, AFTER_MS + 1));
}

/* Everything that a pass over the slots needs, for so long. */
static struct resend_pass *stuck_for(int64_t ms)
{
	for (int64_t until_ms = now_ms + ms; now_ms < until_ms; now_ms += 100) {
		struct resend_pass *pass;

		for (int queue = 0; queue < RESEND_QUEUES; queue++)
			resend_ready(resend, (enum resend_queue)queue, 0, now_ms);
		pass = look();
		if (pass)
			return pass;
	}
	return NULL;
}

static void test_receives_without_a_message(void **state)
{
	struct resend_pass *pass;

	(void)state;
	coupon.outbox_n = 0;
	assert_null(stuck_for(RESEND_SLOTS_MS - 100));
	coupon.settled++; /* one of them was settled */
	assert_null(stuck_for(RESEND_SLOTS_MS));
	pass = stuck_for(200);
	assert_non_null(pass);
	assert_int_equal(pass->kind, RESEND_SLOTS);
	/* They do not have slots: not again and again. */
	pass_make(pass);
	assert_null(stuck_for(AFTER_MS));
	pass_make(stuck_for(60000));
	assert_null(stuck_for(2 * AFTER_MS - 100));
}

static void test_receives_whose_message_is_somewhere(void **state)
{
	(void)state;
	coupon.outbox_n = 0;
	assert_null(wait_for(600000, 0)); /* the dead-letter queue is unknown */
	resend_ready(resend, RESEND_PARKED, 0, now_ms);
	resend_ready(resend, RESEND_DEAD, 1, now_ms);
	assert_null(wait_for(600000, 0));
	resend_ready(resend, RESEND_DEAD, 0, now_ms);
	resend_ready(resend, RESEND_PARKED, 1, now_ms);
	assert_null(wait_for(600000, 0));
	resend_ready(resend, RESEND_PARKED, 0, now_ms);
	assert_null(wait_for(600000, 1));
	assert_non_null(wait_for(600000, 0));
}

static void test_many_coupons(void **state)
{
	(void)state;
	for (int64_t id = 1; id <= RESEND_COUPONS_MAX + 1000; id++) {
		coupon.id = id;
		assert_null(look());
	}
	assert_non_null(wait_for(60000, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_empty_queue),
		TEST(test_age),
		TEST(test_unknown_length),
		TEST(test_slow_queue),
		TEST(test_a_queue_that_was_empty_only_for_a_moment),
		TEST(test_an_empty_queue_while_the_workers_settle),
		TEST(test_overtaken),
		TEST(test_overtaken_again),
		TEST(test_pauses),
		TEST(test_new_connection),
		TEST(test_a_pass_that_found_nothing_does_not_lengthen_the_pause),
		TEST(test_a_long_pass_is_followed_by_a_long_pause),
		TEST(test_a_pass_that_waited_is_followed_by_a_short_pause),
		TEST(test_a_pass_that_leaves_little_is_followed_by_a_short_pause),
		TEST(test_no_pause_is_longer_than_the_longest),
		TEST(test_a_pass_goes_on),
		TEST(test_a_new_generation),
		TEST(test_receives_without_a_message),
		TEST(test_receives_whose_message_is_somewhere),
		TEST(test_many_coupons),
	};

	return cmocka_run_group_tests_name("resend", tests, NULL, NULL);
}
