/*
 * Coupons in doubt, as recorded by the processes of a gateway for each other. Here one process
 * enters as each of them in turn.
 */
#include "gateway/admit/coupon_table.h"

#include "common/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MEMORY_MS 60000
#define SLOTS 4096

static int64_t ids[4];

/* Ids of different slots, whatever the key of the hash. */
static void ids_make(void)
{
	uint64_t slots[4];
	size_t n = 0, i;

	for (int64_t id = 7; n < 4; id++) {
		slots[n] = hash_keyed(&id, sizeof(id)) % SLOTS;
		for (i = 0; slots[i] != slots[n]; i++)
			;
		if (i == n)
			ids[n++] = id;
	}
}

static void test_alone(void **state)
{
	(void)state;
	doubt_init(1);
	doubt_enter(0, 1000, MEMORY_MS);
	doubt_busy(7, 1);
	doubt_until(7, 5000);
	assert_false(doubt_elsewhere(7, 1000));
}

/*
 * One after the other: each entering process is a new one, so that the earlier process of a page
 * counts as dead.
 */
static void test_three(void **state)
{
	(void)state;
	ids_make();
	doubt_init(3);
	doubt_enter(0, 1000, MEMORY_MS);
	doubt_busy(ids[0], 1);
	doubt_busy(ids[1], 1);
	doubt_busy(ids[1], 0);
	doubt_until(ids[2], 5000);
	assert_false(doubt_elsewhere(ids[0], 1000)); /* its own record does not count */
	doubt_enter(1, 1000, MEMORY_MS);
	assert_true(doubt_elsewhere(ids[0], 1000));
	assert_false(doubt_elsewhere(ids[1], 1000));
	assert_true(doubt_elsewhere(ids[2], 4999));
	assert_false(doubt_elsewhere(ids[2], 5000));
	assert_false(doubt_elsewhere(ids[3], 1000));
	/*
	 * Process 0 has died and was restarted: it holds no requests, but earlier ones may still
	 * take effect.
	 */
	doubt_enter(0, 2000, MEMORY_MS);
	assert_true(doubt_elsewhere(ids[3], 2000));
	doubt_enter(2, 2000, MEMORY_MS);
	assert_true(doubt_elsewhere(ids[3], 2000 + MEMORY_MS - 1));
	assert_false(doubt_elsewhere(ids[0], 2000 + MEMORY_MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_alone),
					    cmocka_unit_test(test_three) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
