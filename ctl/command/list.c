/* couponctl list: all coupons, in pages. */
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>

static void row_print(void *context, const PGresult *page, int row)
{
	const char *begin = db_text(page, row, "begin_at"), *end = db_text(page, row, "end_at");

	(void)context;
	printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", db_text(page, row, "id"),
	       db_text(page, row, "state"), db_text(page, row, "total_num"),
	       db_text(page, row, "issued_num"), db_text(page, row, "user_limit"),
	       *begin ? begin : "-", *end ? end : "-", db_text(page, row, "name"));
}

static void row_json(void *context, const PGresult *page, int row)
{
	cJSON *object = output_object();

	(void)context;
	output_text(object, "coupon", db_text(page, row, "id"));
	output_text(object, "name", db_text(page, row, "name"));
	output_text(object, "status", db_text(page, row, "status"));
	output_text(object, "state", db_text(page, row, "state"));
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
		count = args_number(&ctl->args, "count", 1, INT64_MAX, INT64_MAX);
	struct db *db = store_postgres_open(ctl);

	if (args_has(&ctl->args, "json")) {
		store_coupons_read(db, sql_query_coupon_list, after, count, row_json, NULL);
	} else {
		printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", "coupon", "state", "total",
		       "issued", "limit", "begin", "end", "name");
		store_coupons_read(db, sql_query_coupon_list, after, count, row_print, NULL);
	}
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
