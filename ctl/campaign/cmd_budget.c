/* couponctl budget: what campaigns may give in all. */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/api_key.h"
#include "common/message/json.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define KEEPER_WAIT_MS 5000
#define KEEPER_POLL_US 20000

static const char *name_argument(const struct args *args)
{
	const char *name = args->argument;

	if (!*name || strlen(name) > KEY_NAME_MAX || strspn(name, KEY_NAME_BYTES) != strlen(name))
		args_fail("NAME is \"%s\": allowed are 1 to %d letters, digits, '.', '_' and '-'",
			  name, KEY_NAME_MAX);
	if (strcasecmp(name, "none") == 0 || strcasecmp(name, "null") == 0)
		args_fail("NAME is \"%s\": allowed is a name other than none and null, by which a "
			  "campaign has no budget",
			  name);
	return name;
}

/* The row of sql_query_budget_list; one that is absent ends the process. */
static PGresult *budget_row(struct db *db, const char *name)
{
	PGresult *row = db_ask(db, sql_query_budget_list, postgres_text(name), postgres_text(NULL),
			       postgres_text(NULL));

	if (PQntuples(row) == 0)
		log_fatal_as(CTL_ABSENT, "there is no budget %s", name);
	return row;
}

/* A row with amounts. */
static cJSON *row_read(const PGresult *rows, int row, const char *currency, int as_json)
{
	static const char *const amounts[] = { "amount", "held", "spent", "left" };
	cJSON *object = output_object();

	output_row(object, rows, row);
	for (size_t i = 0; !as_json && i < sizeof(amounts) / sizeof(amounts[0]); i++)
		output_money(object, amounts[i], currency);
	return object;
}

/* One row, and what was changed of it. Clears the rows. */
static void budget_say(PGresult *budget, PGresult *history, int as_json)
{
	const char *currency = column_text(budget, 0, "currency");
	cJSON *object = row_read(budget, 0, currency, as_json), *entries = cJSON_CreateArray();

	for (int row = 0; row < PQntuples(history); row++)
		cJSON_AddItemToArray(entries, row_read(history, row, currency, as_json));
	if (as_json)
		output_add(object, "history", entries);
	output_say(object,
		   "budget {name}\n"
		   "  amount     {amount:20} {currency}\n"
		   "  spent      {spent:20}\n"
		   "  held       {held:20}\n"
		   "  left       {left:20}\n"
		   "  campaigns  {campaigns}\n"
		   "  created    {created_at}\n"
		   "  changed    {updated_at}\n"
		   "\n",
		   as_json);
	for (const cJSON *entry = as_json ? NULL : entries->child; entry; entry = entry->next)
		output_template("{at}  {amount:20} by {by}; {spent} were spent, {held} held\n",
				entry);
	if (!as_json)
		cJSON_Delete(entries);
	PQclear(history);
	PQclear(budget);
}

static int show_run(struct ctl *ctl)
{
	const char *name = name_argument(&ctl->args);
	struct db *db = store_postgres_open(ctl);

	budget_say(budget_row(db, name), db_ask(db, sql_query_budget_history, postgres_text(name)),
		   args_has(&ctl->args, "json"));
	db_close(db);
	return 0;
}

static int list_run(struct ctl *ctl)
{
	int as_json = args_has(&ctl->args, "json");
	struct db *db = store_postgres_open(ctl);
	PGresult *rows = db_ask(db, sql_query_budget_list, postgres_text(NULL),
				postgres_text(args_text(&ctl->args, "after")),
				postgres_number(args_count(&ctl->args, PAGE_COUNT_MAX)));

	if (!as_json)
		printf("%-24s %-8s %20s %20s %20s  %s\n", "budget", "currency", "amount", "spent",
		       "left", "campaigns");
	for (int row = 0; row < PQntuples(rows); row++)
		output_say(row_read(rows, row, column_text(rows, row, "currency"), as_json),
			   "{name:-24} {currency:-8} {amount:20} {spent:20} {left:20}  "
			   "{campaigns}\n",
			   as_json);
	PQclear(rows);
	db_close(db);
	return 0;
}

/* What it is now. */
static void changed_say(struct db *db, const char *name, int as_json)
{
	PGresult *row = budget_row(db, name);

	output_say(row_read(row, 0, column_text(row, 0, "currency"), as_json),
		   "budget {name} has {amount} {currency}, of which {left} are left\n", as_json);
	PQclear(row);
	db_close(db);
}

static int create_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *name = name_argument(args), *currency;
	int64_t amount;
	PGresult *made;
	cJSON *before;
	struct db *db;

	args_required(args, "currency");
	currency = args_currency(args);
	amount = args_money(args, "amount", currency, 0);
	db = store_changing_open(ctl, NULL);
	db_run(db, "BEGIN");
	before = store_key_take(db, ctl, NULL);
	if (!before) {
		made = db_ask(db, sql_query_budget_create, postgres_text(name),
			      postgres_text(currency), postgres_number(amount));
		if (PQntuples(made) == 0)
			log_fatal("NAME is \"%s\": a budget with this name exists", name);
		PQclear(made);
	}
	cJSON_Delete(before);
	db_run(db, "COMMIT");
	output_made("budget %s was made", name);
	changed_say(db, name, args_has(args, "json"));
	return 0;
}

/*
 * Waits until the keeper has paused or resumed the campaigns by the new amount, and all gateways
 * know it. Returns the exit status.
 */
static int campaigns_wait(struct db *db, struct redis_client *redis, const char *name)
{
	int64_t until_ms = clock_monotonic_ms() + KEEPER_WAIT_MS;
	int waits, rows_n;

	do {
		PGresult *rows = db_ask(db, sql_query_budget_campaigns, postgres_text(name));

		rows_n = PQntuples(rows);
		waits = 0;
		for (int row = 0; row < rows_n && !waits; row++) {
			struct redis_coupon loaded;

			waits = db_is_true(rows, row, "is_due") ||
				(redis_coupon_read(redis, column_number(rows, row, "id"),
						   &loaded) == 1 &&
				 loaded.version < column_number(rows, row, "version"));
		}
		PQclear(rows);
	} while (waits && usleep(KEEPER_POLL_US) == 0 && clock_monotonic_ms() < until_ms);
	if (waits)
		fprintf(stderr, "couponctl: warning: no keeper has paused or resumed the campaigns "
				"of this budget yet: a coupon-worker does it\n");
	return rows_n > 0 ? store_gateways_wait(db, redis, STORE_NEWS_TERMS) : 0;
}

static int edit_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *name = name_argument(args), *currency;
	char given[MONEY_SIZE], least[MONEY_SIZE];
	PGresult *row, *set;
	struct redis_client *redis;
	int64_t amount;
	struct db *db;
	int status;

	args_required(args, "amount");
	db = store_changing_open(ctl, &redis);
	row = budget_row(db, name);
	currency = column_text(row, 0, "currency");
	amount = args_money(args, "amount", currency, 0);
	set = db_ask(db, sql_query_budget_set, postgres_text(name), postgres_number(amount));
	if (!db_is_true(set, 0, "is_set"))
		log_fatal("--amount is \"%s\": allowed is at least the %s that are spent or held",
			  args_money_text(args, "amount", amount, currency, given),
			  args_money_text(args, "amount", column_number(set, 0, "taken"), currency,
					  least));
	PQclear(set);
	PQclear(row);
	status = campaigns_wait(db, redis, name);
	redis_client_free(redis);
	changed_say(db, name, args_has(args, "json"));
	return status;
}

#define AMOUNT_OPTION OPTION("amount", ARGS_MONEY, "what its campaigns may give in all")

static const struct command budget_create_command = {
	.name = "budget create",
	.run = create_run,
	.argument = "NAME",
	.options = OPTIONS(AMOUNT_OPTION,
			   OPTION("currency", "CODE", "three capital letters as of ISO 4217"),
			   KEY_OPTION, BY_OPTION),
	.summary = "make a budget",
	.detail =
		"Needs --amount and --currency. NAME has 1 to 64 letters, digits, '.', '_' and\n"
		"'-'. AMOUNT is as people write it, with all digits of the currency or without a\n"
		"point: 50000.00 EUR, 50000 JPY. Campaigns take from the budget by couponctl\n"
		"create and edit, --budget NAME.",
};

static const struct command budget_list_command = {
	.name = "budget list",
	.run = list_run,
	.options = OPTIONS(PAGE_OPTIONS("NAME", "budget", "all")),
	.summary = "list the budgets by name",
};

static const struct command budget_show_command = {
	.name = "budget show",
	.run = show_run,
	.argument = "NAME",
	.summary = "show a budget, its campaigns, and what operators have changed",
};

static const struct command budget_edit_command = {
	.name = "budget edit",
	.run = edit_run,
	.argument = "NAME",
	.options = OPTIONS(AMOUNT_OPTION, BY_OPTION),
	.summary = "give a budget another amount",
	.detail =
		"Needs --amount, which is absolute, so repeating the command changes nothing. It\n"
		"is never less than what is spent and held.",
};

const struct command budget_command = {
	.name = "budget",
	.subcommands = COMMANDS(&budget_create_command, &budget_list_command, &budget_show_command,
				&budget_edit_command),
	.summary = "what campaigns may give in all",
};
