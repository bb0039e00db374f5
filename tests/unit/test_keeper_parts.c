/*
 * The keeper's decisions by counts alone: when a campaign has ended, whether Redis and PostgreSQL
 * agree, and which campaigns are told.
 */
#include "keeper/coupon.h"
#include "keeper/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static void test_close_due(void **state)
{
	struct coupon_row row = { .status = COUPON_OPEN, .end_ms = 5000 };

	(void)state;
	assert_false(close_due(&row, 5000 + CLOSE_GRACE_MS - 1));
	assert_true(close_due(&row, 5000 + CLOSE_GRACE_MS));
	row.status = COUPON_PAUSED;
	assert_true(close_due(&row, 5000 + CLOSE_GRACE_MS));
	row.status = COUPON_CLOSED;
	assert_false(close_due(&row, 5000 + CLOSE_GRACE_MS));
	row = (struct coupon_row){ .status = COUPON_OPEN };
	assert_false(close_due(&row, 1LL << 50));
}

/* Issuing and settling, whichever of the two sides was read first, change nothing. */
static void test_equal_while_things_happen(void **state)
{
	struct coupon_row row = { .issued = 7, .settled = 3 };
	struct coupon_look look = { .total = 20, .stock = 9, .reserved = 2, .lost = 1, .seq = 4 };

	(void)state;
	assert_true(coupon_adds_up(&row, &look, 0));
	look.seq++, look.stock--;
	assert_true(coupon_adds_up(&row, &look, 0));
	row.issued++, row.settled++;
	assert_true(coupon_adds_up(&row, &look, 0));
	look.total += 5, look.stock += 5;
	assert_true(coupon_adds_up(&row, &look, 0));
	look.stock--;
	assert_false(coupon_adds_up(&row, &look, 0));
	assert_true(coupon_adds_up(&row, &look, 1));
	look.lost++;
	assert_false(coupon_adds_up(&row, &look, 1));
}

static struct keeper_watch watch;

/* Campaigns 1 to `n` are seen; of one of them receives are in flight. */
static void sweep(int64_t n, int64_t busy, int64_t now_ms)
{
	keeper_watch_begin(&watch);
	for (int64_t id = 1; id <= n; id++) {
		const struct coupon_row row = { .id = id, .total = 10 };
		const struct coupon_look look = { .present = 1,
						  .run_id = "run",
						  .total = 10,
						  .stock = id == busy ? 7 : 10,
						  .seq = id == busy ? 3 : 0 };

		assert_int_equal(keeper_watch_add(&watch, NULL, "run", &row, &look, now_ms), 0);
	}
	keeper_watch_publish(&watch);
}

/* The value of `name` that is told of a campaign; -1: none is. */
static long long told(const char *name, int64_t campaign)
{
	struct evbuffer *out = evbuffer_new();
	long long found = -1;
	char *line;

	keeper_metrics_prometheus(out);
	while ((line = evbuffer_readln(out, NULL, EVBUFFER_EOL_LF))) {
		long long coupon, value;
		char of[64];

		if (sscanf(line, "couponmq_keeper_coupon_%63[a-z_]{coupon=\"%lld\"} %lld", of,
			   &coupon, &value) == 3 &&
		    strcmp(of, name) == 0 && coupon == campaign)
			found = value;
		free(line);
	}
	evbuffer_free(out);
	return found;
}

static void test_campaigns_that_are_told(void **state)
{
	const int64_t last = WATCH_CAMPAIGNS, beyond = WATCH_CAMPAIGNS + 1;
	int64_t now_ms = 1000000;

	(void)state;
	sweep(1, 0, now_ms);
	assert_int_equal(told("stock", 1), 10);
	assert_int_equal(told("stock", 2), -1);
	sweep(beyond, 2, now_ms);
	assert_int_equal(told("offered", last), 10);
	assert_int_equal(told("offered", beyond), -1);
	assert_int_equal(told("in_flight", 1), 0);
	assert_int_equal(told("in_flight", 2), 3);
	assert_int_equal(told("stock", 2), 7);
	sweep(beyond, beyond, now_ms); /* 1 has never been busy */
	assert_int_equal(told("in_flight", beyond), 3);
	assert_int_equal(told("in_flight", 1), -1);
	assert_int_equal(told("in_flight", 2), 0);
	for (int64_t id = 3; id <= last; id++)
		sweep(beyond, id, now_ms);
	sweep(beyond, 1, now_ms + WATCH_IDLE_MS - 1);
	assert_int_equal(told("in_flight", 1), -1);
	sweep(beyond, 1, now_ms + WATCH_IDLE_MS);
	assert_int_equal(told("in_flight", 1), 3);
	assert_int_equal(told("in_flight", beyond), -1);
	sweep(1, 0, now_ms + WATCH_IDLE_MS); /* the others are not watched any more */
	assert_int_equal(told("in_flight", 1), 0);
	assert_int_equal(told("in_flight", 2), -1);
	keeper_watch_none();
	assert_int_equal(told("issued", 1), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_due),
		cmocka_unit_test(test_equal_while_things_happen),
		cmocka_unit_test(test_campaigns_that_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
