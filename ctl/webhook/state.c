/* couponctl webhook disable, enable, remove. */
#include "ctl/by.h"
#include "ctl/store.h"
#include "ctl/webhook/hook.h"
#include "embed.h"

#include <string.h>

#define WHY_BYTES_MAX 500

static void wake(struct db *db)
{
	PQclear(db_query(db, sql_query_webhook_wake, 0, NULL));
}

static void state_set(struct db *db, int64_t webhook, const char *state, const char *why)
{
	char id[DB_NUMBER_SIZE];
	PGresult *row = db_query(db, sql_query_webhook_state_set, 3,
				 (const char *[]){ db_number(webhook, id), state, why });

	if (PQntuples(row) == 0)
		hook_absent(webhook);
	PQclear(row);
}

static int disable_run(struct ctl *ctl)
{
	const char *why = args_text(&ctl->args, "why");
	struct db *db;

	if (why && (!*why || strlen(why) > WHY_BYTES_MAX))
		args_fail("--why has %zu bytes: allowed are 1 to %d", strlen(why), WHY_BYTES_MAX);
	db = store_changing_open(ctl);
	state_set(db, args_argument_id(&ctl->args), "disabled", why);
	db_close(db);
	return 0;
}

static int enable_run(struct ctl *ctl)
{
	struct db *db = store_changing_open(ctl);

	state_set(db, args_argument_id(&ctl->args), "enabled", NULL);
	wake(db);
	db_close(db);
	return 0;
}

static int remove_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args);
	char id[DB_NUMBER_SIZE];
	struct db *db = store_changing_open(ctl);
	PGresult *row = db_query(db, sql_query_webhook_remove, 1,
				 (const char *[]){ db_number(webhook, id) });

	if (PQntuples(row) == 0)
		hook_absent(webhook);
	PQclear(row);
	db_close(db);
	return 0;
}

static const struct option disable_options[] = {
	OPTION("why", "TEXT", "shown by list and show, 1 to 500 bytes"),
	BY_OPTION,
	OPTIONS_END,
};

static const struct option by_options[] = {
	BY_OPTION,
	OPTIONS_END,
};

const struct command webhook_disable_command = {
	.name = "webhook disable",
	.run = disable_run,
	.argument = "ID",
	.options = disable_options,
	.summary = "send nothing to a webhook any more",
	.detail = "What is queued stays, and is sent once it is enabled. Events that come\n"
		  "meanwhile are not queued. Repeated, it changes nothing else.",
};

const struct command webhook_enable_command = {
	.name = "webhook enable",
	.run = enable_run,
	.argument = "ID",
	.options = by_options,
	.summary = "send to a webhook again, whoever disabled it",
	.detail = "What is due is tried at once.",
};

const struct command webhook_remove_command = {
	.name = "webhook remove",
	.run = remove_run,
	.argument = "ID",
	.options = by_options,
	.summary = "remove a webhook with its secrets and all that is queued for it",
};
