/*
 * The keeper's decisions by counts alone: when a campaign has ended, and whether Redis and
 * PostgreSQL agree.
 */
#include "keeper/coupon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_due),
		cmocka_unit_test(test_equal_while_things_happen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
