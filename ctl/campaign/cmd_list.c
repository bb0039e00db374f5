/* couponctl list: all campaigns. */
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>

static void list_row_print(void *context, const PGresult *page, int row)
{
	cJSON *object = output_object();

	output_row(object, page, row);
	output_say(object,
		   "{coupon:-20} {state:-10} {total:12} {issued:12} {limit:5}  {begin:-24|-}  "
		   "{end:-24|-}  {name}\n",
		   *(const int *)context);
}

static int list_run(struct ctl *ctl)
{
	int64_t after = args_id(&ctl->args, "after"), count = args_count(&ctl->args, INT64_MAX);
	int as_json = args_has(&ctl->args, "json");
	struct db *db = store_postgres_open(ctl);

	if (!as_json)
		printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", "coupon", "state", "total",
		       "issued", "limit", "begin", "end", "name");
	store_coupons_read(db, sql_query_coupon_list, after, count, list_row_print, &as_json);
	db_close(db);
	return 0;
}

const struct command list_command = {
	.name = "list",
	.run = list_run,
	.options = OPTIONS(PAGE_OPTIONS("ID", "coupon", "all")),
	.summary = "list all campaigns by id",
};
