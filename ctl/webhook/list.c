/* couponctl webhook list: all webhooks, in pages. */
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/webhook/hook_json.h"
#include "embed.h"

#include <stdio.h>

#define PAGE 100

static void row_print(const PGresult *rows, int row)
{
	const char *coupon = db_text(rows, row, "coupon_id");

	printf("%-8s %-9s %-20s %9s %9s %9s  %s\n", db_text(rows, row, "id"),
	       db_text(rows, row, "state"), *coupon ? coupon : "every",
	       db_text(rows, row, "waiting_num"), db_text(rows, row, "failed_num"),
	       db_text(rows, row, "dropped_num"), db_text(rows, row, "url"));
}

static int list_run(struct ctl *ctl)
{
	int as_json = args_has(&ctl->args, "json"), rows_n;
	struct db *db = store_postgres_open(ctl);
	int64_t after = 0;

	if (!as_json)
		printf("%-8s %-9s %-20s %9s %9s %9s  %s\n", "webhook", "state", "coupon", "waiting",
		       "given up", "dropped", "url");
	do {
		char id[DB_NUMBER_SIZE], limit[DB_NUMBER_SIZE];
		PGresult *rows = db_query(db, sql_query_webhook_list, 3,
					  (const char *[]){ db_number(after, id),
							    db_number(PAGE, limit), NULL });

		rows_n = PQntuples(rows);
		for (int row = 0; row < rows_n; row++) {
			after = db_int(rows, row, "id");
			if (as_json)
				output_print(hook_json(rows, row));
			else
				row_print(rows, row);
		}
		PQclear(rows);
	} while (rows_n == PAGE);
	db_close(db);
	return 0;
}

static const struct option list_options[] = {
	SWITCH("json", "print one JSON object a line"),
	OPTIONS_END,
};

const struct command webhook_list_command = {
	.name = "webhook list",
	.run = list_run,
	.options = list_options,
	.summary = "list the webhooks by id",
	.detail = "Waiting and given up are requests, dropped are events.",
};
