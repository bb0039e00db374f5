/* couponctl webhook resend: requests that were given up are tried again. */
#include "common/log/log.h"
#include "ctl/by.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/webhook/hook.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

static void disabled_warn(const PGresult *hook)
{
	if (strcmp(db_text(hook, 0, "state"), "disabled") == 0)
		fprintf(stderr,
			"couponctl: warning: webhook %s is disabled: they are sent once it "
			"is enabled\n",
			db_text(hook, 0, "id"));
}

static int resend_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args), delivery = args_id(&ctl->args, "delivery");
	char id[DB_NUMBER_SIZE], one[DB_NUMBER_SIZE], grouped[OUTPUT_GROUPED_SIZE];
	struct db *db = store_changing_open(ctl);
	PGresult *hook = hook_row(db, webhook), *rows;
	int rows_n;

	rows = db_query(db, sql_query_webhook_resend, 2,
			(const char *[]){ db_number(webhook, id),
					  delivery ? db_number(delivery, one) : NULL });
	rows_n = PQntuples(rows);
	PQclear(rows);
	if (delivery && rows_n == 0)
		log_fatal("webhook %s has no delivery %s that was given up", id, one);
	PQclear(db_query(db, sql_query_webhook_wake, 0, NULL));
	db_close(db);
	disabled_warn(hook);
	PQclear(hook);
	if (args_has(&ctl->args, "json"))
		printf("{\"webhook\":\"%s\",\"resent\":%d}\n", id, rows_n);
	else
		printf("webhook %s: %s to be sent again\n", id, output_grouped(rows_n, grouped));
	return 0;
}

static const struct option resend_options[] = {
	OPTION("delivery", "DELIVERY", "only this one; default: all that were given up"),
	SWITCH("json", "print {\"webhook\":\"ID\",\"resent\":N}"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command webhook_resend_command = {
	.name = "webhook resend",
	.run = resend_run,
	.argument = "ID",
	.options = resend_options,
	.summary = "try requests again that were given up",
	.detail = "Each has the same webhook-id as before, and all its attempts anew.",
};
