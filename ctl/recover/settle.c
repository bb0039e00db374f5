#include "ctl/recover/settle.h"

#include "common/fault.h"
#include "ctl/recover/held.h"
#include "ctl/recover/report.h"
#include "embed.h"

#include <string.h>

enum { BATCHES, INDEXES, USERS, SLOTS, KEYS, CODES, TIMES, ARRAYS };

static const enum postgres_type types[ARRAYS] = {
	[BATCHES] = POSTGRES_UUID, [INDEXES] = POSTGRES_INT2, [USERS] = POSTGRES_TEXT,
	[SLOTS] = POSTGRES_INT2,   [KEYS] = POSTGRES_TEXT,    [CODES] = POSTGRES_TEXT,
	[TIMES] = POSTGRES_INT8,
};

static void arrays_fill(struct recover_coupon *coupon, const struct held *list, size_t n,
			struct postgres_array arrays[ARRAYS])
{
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_init(&arrays[i], types[i]);
	for (size_t i = 0; i < n; i++) {
		const struct user_record *record = &list[i].record;
		size_t code_len;
		const char *code = receive_tail_code(record->key, record->tail_len, record->key_len,
						     &code_len);

		postgres_array_add_uuid(&arrays[BATCHES], &record->batch);
		postgres_array_add_number(&arrays[INDEXES], record->index);
		postgres_array_add_text(&arrays[USERS], list[i].user.text, list[i].user.len);
		postgres_array_add_number(&arrays[SLOTS], record->slot);
		postgres_array_add_text(&arrays[KEYS], record->key, record->key_len);
		postgres_array_add_text(&arrays[CODES], code, code_len);
		postgres_array_add_number(&arrays[TIMES], held_time(coupon, &record->batch));
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
	struct postgres_array arrays[ARRAYS];
	struct postgres_argument arguments[3 + ARRAYS];
	PGresult *rows;

	coupon->recover->counts.receives_there += (int64_t)(all_n - n);
	if (n == 0)
		return;
	fault_point(FAULT_RECOVER_SETTLING);
	arrays_fill(coupon, list, n, arrays);
	arguments[0] = postgres_number(coupon->id);
	arguments[1] = postgres_number(coupon->settling);
	/* Redis has not given out a higher one. */
	arguments[2] = postgres_number(coupon->settling == coupon->generation ? coupon->seq : 0);
	for (int i = 0; i < ARRAYS; i++)
		arguments[3 + i] = postgres_array(&arrays[i]);
	rows = db_query_arguments(coupon->recover->db, sql_query_recover_settle, 3 + ARRAYS,
				  arguments);
	outcomes_count(coupon, list, n, rows);
	PQclear(rows);
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_fini(&arrays[i]);
}

void receives_settle(struct recover_coupon *coupon)
{
	held_read(coupon, list_settle);
}
