/* couponctl list: all coupons, in pages. */
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>

#define PAGE 500

static void row_print(const PGresult *page, int row)
{
	const char *begin = db_text(page, row, "begin_at"), *end = db_text(page, row, "end_at");

	printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", db_text(page, row, "id"),
	       db_text(page, row, "status"), db_text(page, row, "total_num"),
	       db_text(page, row, "issued_num"), db_text(page, row, "user_limit"),
	       *begin ? begin : "-", *end ? end : "-", db_text(page, row, "name"));
}

static void row_json(const PGresult *page, int row)
{
	cJSON *object = output_object();

	output_text(object, "coupon", db_text(page, row, "id"));
	output_text(object, "name", db_text(page, row, "name"));
	output_text(object, "status", db_text(page, row, "status"));
	output_number(object, "total", db_int(page, row, "total_num"));
	output_number(object, "issued", db_int(page, row, "issued_num"));
	output_number(object, "limit", db_int(page, row, "user_limit"));
	output_text(object, "begin", db_text(page, row, "begin_at"));
	output_text(object, "end", db_text(page, row, "end_at"));
	output_print(object);
}

static int list_run(struct ctl *ctl)
{
	int64_t after = args_id(&ctl->args, "after"),
		left = args_number(&ctl->args, "count", 1, INT64_MAX, INT64_MAX);
	int json = args_has(&ctl->args, "json"), rows_n;
	struct db *db = store_postgres_open(ctl);

	if (!json)
		printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", "coupon", "status", "total",
		       "issued", "limit", "begin", "end", "name");
	do {
		char id[DB_NUMBER_SIZE], count[DB_NUMBER_SIZE];
		int page_n = left < PAGE ? (int)left : PAGE;
		PGresult *page = db_query(db, sql_query_coupon_list, 2,
					  (const char *[]){ db_number(after, id),
							    db_number(page_n, count) });

		rows_n = PQntuples(page);
		for (int row = 0; row < rows_n; row++) {
			if (json)
				row_json(page, row);
			else
				row_print(page, row);
			after = db_int(page, row, "id");
		}
		left -= rows_n;
		PQclear(page);
	} while (rows_n == PAGE && left > 0);
	db_close(db);
	return 0;
}

static const struct option list_options[] = {
	OPTION("after", "ID", "only coupons with a higher id"),
	OPTION("count", "N", "at most N coupons"),
	SWITCH("json", "print one JSON object a line"),
	OPTIONS_END,
};

const struct command list_command = {
	.name = "list",
	.run = list_run,
	.options = list_options,
	.summary = "list the coupons by id",
};
