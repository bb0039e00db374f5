/* couponctl history: the commands that were run, or the changes of one campaign. */
#include "common/check.h"
#include "common/message/json.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMANDS_COUNT 100 /* by default */

/* The value of a term as a text, to be freed. Amounts are in `currency`. */
static char *term_text(const char *term, const cJSON *value, const char *currency)
{
	static const char *const amounts[] = { "amount_off", "cap", "threshold" };
	char money[MONEY_SIZE], *text;

	for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++)
		if (currency && cJSON_IsNumber(value) && strcmp(term, amounts[i]) == 0) {
			money_text((int64_t)value->valuedouble, currency, money);
			check(asprintf(&text, "%s %s", money, currency) > 0);
			return text;
		}
	text = json_write(value);
	return text ? text : checked(strdup(""));
}

/* Prints "total_num: 10 -> 20". `currency` is that of the coupon after the changes. */
static void changes_print(const char *text, const char *currency)
{
	cJSON *changes = cJSON_Parse(text);
	const cJSON *change, *moved = cJSON_GetObjectItemCaseSensitive(changes, "currency");
	const char *currency_before = moved ? cJSON_GetStringValue(cJSON_GetArrayItem(moved, 0))
					    : currency;

	cJSON_ArrayForEach(change, changes)
	{
		char *before = term_text(change->string, cJSON_GetArrayItem(change, 0),
					 currency_before),
		     *after = term_text(change->string, cJSON_GetArrayItem(change, 1), currency);

		printf("    %s: %s -> %s\n", change->string, before, after);
		free(before);
		free(after);
	}
	cJSON_Delete(changes);
}

static int history_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_id_argument(args), after = args_id(args, "after"),
		count = args_count(args, coupon ? PAGE_COUNT_MAX : COMMANDS_COUNT);
	struct db *db = store_postgres_open(ctl);
	PGresult *entries;

	if (coupon) {
		PQclear(store_coupon_row(db, sql_query_coupon_issued, coupon));
		entries = db_ask(db, sql_query_coupon_history, postgres_number(coupon),
				 postgres_number(after), postgres_number(count));
	} else {
		entries = db_ask(db, sql_query_command_list, db_id(after), postgres_number(count));
	}
	db_close(db);
	if (!coupon || args_has(args, "json")) {
		output_rows(entries, NULL, "{id:-6} {at}  {status|-}  {by}: {command}{words}\n",
			    args_has(args, "json"));
		return CTL_DONE;
	}
	for (int row = 0; row < PQntuples(entries); row++) {
		const char *from = column_text(entries, row, "from"),
			   *to = column_text(entries, row, "to");
		cJSON *entry = output_object();

		output_row(entry, entries, row);
		output_template("{at}  version {version:-3}  {action:-8} ", entry);
		if (*from && strcmp(from, to) != 0)
			printf("%s -> ", from);
		output_say(entry, "{to}, by {by}\n", 0);
		changes_print(column_text(entries, row, "changes"),
			      column_text(entries, row, "currency"));
	}
	PQclear(entries);
	return CTL_DONE;
}

const struct command history_command = {
	.name = "history",
	.run = history_run,
	.argument = "[ID]",
	.options = OPTIONS(PAGE_OPTIONS("N", "entry", "100; of a campaign all")),
	.summary = "print what was changed: by all commands, or of one campaign",
	.detail = "Without an ID, the command prints each command that changes something, the "
		  "latest\n"
		  "first. A command is recorded before it changes anything, and its exit status "
		  "when\n"
		  "it ends. The last 100,000 commands are kept, without exchange codes.\n"
		  "With an ID, it prints every change of that campaign, in order: the time, who "
		  "made\n"
		  "it, and each term before and after. PostgreSQL records a change whoever makes "
		  "it.\n"
		  "That a campaign opened by the clock, at its begin, is an entry as well.",
};
