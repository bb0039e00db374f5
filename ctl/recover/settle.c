#include "ctl/recover/settle.h"

#include "common/fault.h"
#include "common/postgres/settle_args.h"
#include "ctl/recover/held.h"
#include "ctl/recover/report.h"
#include "embed.h"

#include <string.h>

static void args_fill(struct recover_coupon *coupon, const struct held *list, size_t n,
		      struct settle_args *args)
{
	for (size_t i = 0; i < n; i++) {
		const struct user_record *record = &list[i].record;

		settle_args_add(args,
				&(struct settle_receive){
					.coupon = coupon->id,
					.generation = coupon->settling,
					/* Redis has not given out a higher one. */
					.seq = coupon->settling == coupon->generation ? coupon->seq
										      : 0,
					.batch = &record->batch,
					.index = record->index,
					.user = &list[i].user,
					.slot = record->slot,
					.tail = record->key,
					.key_len = record->key_len,
					.tail_len = record->tail_len,
					.at_ms = held_time(coupon, &record->batch) });
	}
}

/* The rows: those that were not newly issued. */
static void outcomes_count(struct recover_coupon *coupon, const struct held *list, size_t n,
			   const PGresult *rows)
{
	struct recover_counts *counts = &coupon->recover->counts;

	for (int row = 0; row < PQntuples(rows); row++) {
		if (strcmp(db_text(rows, row, "outcome"), "rejected") != 0) {
			counts->receives_there++;
			continue;
		}
		counts->receives_rejected++;
		report_receive(coupon->recover, "rejected", coupon->id,
			       &list[db_int(rows, row, "ord") - 1], db_text(rows, row, "reason"));
	}
	counts->receives += (int64_t)n - PQntuples(rows);
}

static void list_settle(struct recover_coupon *coupon, struct held *list, size_t all_n)
{
	size_t n = held_keep_open(coupon, list, all_n);
	struct settle_args args;
	struct postgres_argument arguments[SETTLE_ARGS_N];
	PGresult *rows;

	coupon->recover->counts.receives_there += (int64_t)(all_n - n);
	if (n == 0)
		return;
	fault_point(FAULT_RECOVER_SETTLING);
	settle_args_init(&args);
	args_fill(coupon, list, n, &args);
	settle_args_arguments(&args, arguments);
	rows = db_query_arguments(coupon->recover->db, sql_query_recover_settle, SETTLE_ARGS_N,
				  arguments);
	outcomes_count(coupon, list, n, rows);
	PQclear(rows);
	settle_args_fini(&args);
}

void receives_settle(struct recover_coupon *coupon)
{
	held_read(coupon, list_settle);
}
