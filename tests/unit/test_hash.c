/*
 * Tables stay tables when the ids are chosen so that they have the same hash in uthash: the longest
 * chain is counted.
 */
#include "common/hash.h"
#include "common/put_off.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/read/lookup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define IDS 20000
#define SAME_BITS 1023 /* of their hashes; uthash stops making such a table larger before that */
/* uthash enlarges a table when a chain has ten entries, or some more when it is large. */
#define CHAIN_MAX 100

static int64_t ids[IDS];

static unsigned chain_longest(const UT_hash_table *table)
{
	unsigned longest = 0;

	for (unsigned i = 0; i < table->num_buckets; i++)
		if (table->buckets[i].count > longest)
			longest = table->buckets[i].count;
	return longest;
}

static unsigned unkeyed(int64_t id)
{
	unsigned hash;

	HASH_JEN(&id, sizeof(id), hash);
	return hash;
}

static int ids_make(void **state)
{
	int64_t id = 1000000000000000000;

	(void)state;
	for (size_t n = 0; n < IDS; id++)
		if ((unkeyed(id) & SAME_BITS) == 0)
			ids[n++] = id;
	return 0;
}

struct item {
	int64_t id;
	UT_hash_handle hh;
};

/* What the ids do to a table without a key: else the other tests would show nothing. */
static void test_unkeyed(void **state)
{
	struct item *items = calloc(IDS, sizeof(*items)), *table = NULL;

	(void)state;
	assert_non_null(items);
	for (size_t i = 0; i < IDS; i++) {
		items[i].id = ids[i];
		HASH_ADD_BYHASHVALUE(hh, table, id, sizeof(ids[i]), unkeyed(ids[i]), &items[i]);
	}
	assert_int_equal(chain_longest(table->hh.tbl), IDS);
	HASH_CLEAR(hh, table);
	free(items);
}

static void test_coupon_table(void **state)
{
	struct coupon_table table;

	(void)state;
	coupon_table_init(&table, IDS);
	for (size_t i = 0; i < IDS; i++)
		assert_non_null(coupon_table_get(&table, ids[i], 0));
	assert_in_range(chain_longest(table.coupons->hh.tbl), 1, CHAIN_MAX);
	coupon_table_fini(&table);
}

static void on_coupon(void *context, const PGresult *rows)
{
	(void)context;
	(void)rows;
}

static void test_lane(void **state)
{
	struct lane_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct lane lane;

	(void)state;
	lane_init(&lane, IDS);
	for (size_t i = 0; i < IDS; i++)
		assert_int_equal(lane_add(&lane, NULL, ids[i], 0, NULL, on_coupon, NULL), 0);
	assert_in_range(chain_longest(lane.by_coupon->hh.tbl), 1, CHAIN_MAX);
	assert_int_equal(lane_take(&lane, IDS, INT64_MAX, &taken), IDS);
	lane_list_end(&taken, NULL);
}

static void test_put_off(void **state)
{
	struct put_off put_off = { .first_ms = 1, .longest_ms = 1 };

	(void)state;
	for (size_t i = 0; i < IDS; i++)
		put_off_add(&put_off, ids[i], 0);
	assert_in_range(chain_longest(put_off.coupons->hh.tbl), 1, CHAIN_MAX);
	put_off_clear(&put_off);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_unkeyed),
					    cmocka_unit_test(test_coupon_table),
					    cmocka_unit_test(test_lane),
					    cmocka_unit_test(test_put_off) };

	return cmocka_run_group_tests(tests, ids_make, NULL);
}
