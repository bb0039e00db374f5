/*
 * The coupons that are not settled yet are looked at in pages, the last ones first. A page is read
 * until it is settled; then the others are too, or nearly.
 */
#include "ctl/rush/settled.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "embed.h"

#include <stdlib.h>
#include <unistd.h>

#define PAGE 500

static void page_read(struct db *db, const int64_t *ids, uint32_t n, struct rush_counts *counts)
{
	struct postgres_array array;
	PGresult *page;

	postgres_array_init(&array, POSTGRES_INT8);
	for (uint32_t i = 0; i < n; i++)
		postgres_array_add_number(&array, ids[i]);
	page = db_query_arguments(db, sql_query_rush_settled, 1,
				  (const struct postgres_argument[]){ postgres_array(&array) });
	for (uint32_t i = 0; i < n; i++) {
		int row = (int)i;

		if (row >= PQntuples(page) || db_int(page, row, "id") != ids[i])
			log_fatal("there is no coupon %lld", (long long)ids[i]);
		counts[i] = (struct rush_counts){
			.total = db_int(page, row, "total_num"),
			.issued = db_int(page, row, "issued_num"),
			.generation = db_int(page, row, "generation"),
			.settled = db_int(page, row, "settled_num"),
			.settled_now = db_int(page, row, "settled_now_num"),
		};
	}
	PQclear(page);
	postgres_array_fini(&array);
}

void rush_counts_read(struct db *db, const int64_t *ids, uint32_t n, struct rush_counts *counts)
{
	for (uint32_t i = 0; i < n; i += PAGE)
		page_read(db, ids + i, n - i < PAGE ? n - i : PAGE, counts + i);
}

/* Removes from a page of `left` the coupons that are settled. Returns how many stay. */
static uint32_t page_look(const struct rush_settled *settled, uint32_t *left, uint32_t n)
{
	struct rush_counts counts[PAGE];
	int64_t ids[PAGE] = { 0 };
	uint32_t stay = 0;

	for (uint32_t i = 0; i < n; i++)
		ids[i] = settled->ids[left[i]];
	page_read(settled->db, ids, n, counts);
	for (uint32_t i = 0; i < n; i++)
		if (counts[i].settled - settled->before[left[i]].settled < settled->wanted[left[i]])
			left[stay++] = left[i];
	return stay;
}

int64_t rush_settled_wait(const struct rush_settled *settled, int64_t deadline_us)
{
	uint32_t *left = calloc(settled->n, sizeof(*left)), n = 0;
	int64_t settled_us = 0;

	check(left != NULL);
	for (uint32_t i = 0; i < settled->n; i++)
		if (settled->wanted[i] > 0)
			left[n++] = i;
	for (;;) {
		uint32_t page_n = n < PAGE ? n : PAGE, stay;

		stay = page_n ? page_look(settled, left + n - page_n, page_n) : 0;
		n = n - page_n + stay;
		if (n == 0)
			settled_us = clock_monotonic_us();
		if (n == 0 || clock_monotonic_us() >= deadline_us)
			break;
		if (stay > 0)
			usleep(RUSH_POLL_US);
	}
	free(left);
	return settled_us;
}
