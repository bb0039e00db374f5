/* couponctl history: what happened to a campaign, by whom, and when it opened. */
#include "ctl/ctl.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

static void entry_json(const PGresult *entries, int row)
{
	cJSON *object = output_object();

	output_text(object, "at", db_text(entries, row, "at"));
	output_text(object, "by", db_text(entries, row, "made_by"));
	output_text(object, "action", db_text(entries, row, "action"));
	output_text(object, "from", db_text(entries, row, "from_state"));
	output_text(object, "to", db_text(entries, row, "to_state"));
	output_number(object, "version", db_int(entries, row, "version"));
	if (db_is_null(entries, row, "changes"))
		output_null(object, "changes");
	else
		output_add(object, "changes", cJSON_CreateRaw(db_text(entries, row, "changes")));
	output_print(object);
}

/* "total_num: 10 -> 20" */
static void changes_print(const char *text)
{
	cJSON *changes = cJSON_Parse(text);
	const cJSON *change;

	cJSON_ArrayForEach(change, changes)
	{
		char *before = cJSON_PrintUnformatted(cJSON_GetArrayItem(change, 0)),
		     *after = cJSON_PrintUnformatted(cJSON_GetArrayItem(change, 1));

		printf("    %s: %s -> %s\n", change->string, before ? before : "",
		       after ? after : "");
		cJSON_free(before);
		cJSON_free(after);
	}
	cJSON_Delete(changes);
}

static void entry_print(const PGresult *entries, int row)
{
	const char *from = db_text(entries, row, "from_state"),
		   *to = db_text(entries, row, "to_state");
	int moved = *from && strcmp(from, to) != 0;

	printf("%s  version %-3s  %-8s %s%s%s, by %s\n", db_text(entries, row, "at"),
	       db_text(entries, row, "version"), db_text(entries, row, "action"), moved ? from : "",
	       moved ? " -> " : "", to, db_text(entries, row, "made_by"));
	if (!db_is_null(entries, row, "changes"))
		changes_print(db_text(entries, row, "changes"));
}

static int history_run(struct ctl *ctl)
{
	int64_t coupon = args_coupon(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	PGresult *entries;

	entries = store_coupon_row(db, sql_query_coupon_history, coupon); /* at least one */
	for (int row = 0; row < PQntuples(entries); row++)
		if (args_has(&ctl->args, "json"))
			entry_json(entries, row);
		else
			entry_print(entries, row);
	PQclear(entries);
	db_close(db);
	return 0;
}

static const struct option history_options[] = {
	SWITCH("json", "print one JSON object for each entry"),
	OPTIONS_END,
};

const struct command history_command = {
	.name = "history",
	.run = history_run,
	.argument = "ID",
	.options = history_options,
	.summary = "print every change of a campaign: when, by whom, from what to what",
	.detail = "Changes are recorded by PostgreSQL, whoever makes them. When a campaign opened\n"
		  "within its window the clock decided; that is an entry as well.",
};
