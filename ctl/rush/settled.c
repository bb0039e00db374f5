/*
 * The coupons that are not settled yet are looked at in pages, the last ones first. A page is read
 * until it is settled; then the others are too, or nearly.
 */
#include "ctl/rush/settled.h"

#include "common/check.h"
#include "common/clock.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdlib.h>
#include <unistd.h>

#define PAGE 500

void rush_counts_read(struct db *db, int64_t coupon, struct rush_counts *counts)
{
	PGresult *row = store_coupon_row(db, sql_query_rush_settled, coupon);

	*counts = (struct rush_counts){
		.total = db_int(row, 0, "total_num"),
		.issued = db_int(row, 0, "issued_num"),
		.generation = db_int(row, 0, "generation"),
		.settled = db_int(row, 0, "settled_num"),
		.settled_now = db_int(row, 0, "settled_now_num"),
	};
	PQclear(row);
}

static int is_settled(const struct rush_settled *settled, uint32_t i)
{
	struct rush_counts counts;

	rush_counts_read(settled->db, settled->coupons->list[i].id, &counts);
	return counts.settled - settled->before[i].settled >= settled->wanted[i];
}

/* By the row of a page, which has the current generation only. */
static int is_settled_now(const struct rush_settled *settled, uint32_t i, const PGresult *page,
			  int row)
{
	const struct rush_counts *before = &settled->before[i];

	if (db_int(page, row, "generation") != before->generation)
		return is_settled(settled, i);
	return db_int(page, row, "settled_num") - before->settled_now >= settled->wanted[i];
}

static PGresult *page_read(const struct rush_settled *settled, const uint32_t *left, uint32_t n)
{
	struct postgres_array ids;
	PGresult *page;

	postgres_array_init(&ids, POSTGRES_INT8);
	for (uint32_t i = 0; i < n; i++)
		postgres_array_add_number(&ids, settled->coupons->list[left[i]].id);
	page = db_query_arguments(settled->db, sql_query_coupon_page, 3,
				  (const struct postgres_argument[]){ postgres_number(0),
								      postgres_number(n),
								      postgres_array(&ids) });
	postgres_array_fini(&ids);
	return page;
}

/* Removes from a page of `left` the coupons that are settled. Returns how many stay. */
static uint32_t page_look(const struct rush_settled *settled, uint32_t *left, uint32_t n)
{
	PGresult *page = page_read(settled, left, n);
	uint32_t stay = 0;
	int row = 0, rows_n = PQntuples(page);

	for (uint32_t i = 0; i < n; i++) {
		int64_t id = settled->coupons->list[left[i]].id;
		int is_done;

		/* Both are in the order of ids. A page does not have drafts and old coupons. */
		if (row < rows_n && db_int(page, row, "id") == id)
			is_done = is_settled_now(settled, left[i], page, row++);
		else
			is_done = is_settled(settled, left[i]);
		if (!is_done)
			left[stay++] = left[i];
	}
	PQclear(page);
	return stay;
}

int64_t rush_settled_wait(const struct rush_settled *settled, int64_t deadline_us)
{
	uint32_t *left = calloc(settled->coupons->n, sizeof(*left)), n = 0;
	int64_t settled_us = 0;

	check(left != NULL);
	for (uint32_t i = 0; i < settled->coupons->n; i++)
		if (settled->wanted[i] > 0)
			left[n++] = i;
	for (;;) {
		uint32_t page_n = n < PAGE ? n : PAGE, stay;

		if (page_n == 1)
			stay = !is_settled(settled, left[0]);
		else
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
