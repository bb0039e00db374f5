/* couponctl budget: amounts that the discounts of several campaigns are taken from. */
#include "common/clock.h"
#include "common/api_keys.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/say.h"
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
		args_fail("NAME is \"%s\": allowed is a name other than none and null, which mean "
			  "that a campaign has no budget",
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

/* A row of a budget or of its history; for people, with amounts as they are written. */
static cJSON *row_read(const PGresult *rows, int row, const char *currency, int as_json)
{
	static const char *const amounts[] = { "amount", "held", "spent", "left" };
	cJSON *object = output_object();

	output_row(object, rows, row);
	for (size_t i = 0; !as_json && i < sizeof(amounts) / sizeof(amounts[0]); i++)
		output_money(object, amounts[i], currency);
	return object;
}

static int show_run(struct ctl *ctl)
{
	int as_json = args_has(&ctl->args, "json");
	const char *name = name_argument(&ctl->args), *currency;
	struct db *db = store_postgres_open(ctl);
	PGresult *budget = budget_row(db, name),
		 *history = db_ask(db, sql_query_budget_history, postgres_text(name));
	cJSON *object, *entries = cJSON_CreateArray();
	const cJSON *entry;

	currency = column_text(budget, 0, "currency");
	object = row_read(budget, 0, currency, as_json);
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
		   "  campaigns  {campaigns|none}\n"
		   "  created    {created_at}\n"
		   "  changed    {updated_at}\n"
		   "\n",
		   as_json);
	if (!as_json) {
		cJSON_ArrayForEach(entry, entries) output_template(
			"{at}  {amount:20} by {by}; {spent} were spent, {held} held\n", entry);
		cJSON_Delete(entries);
	}
	PQclear(history);
	PQclear(budget);
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
			   "{campaigns|none}\n",
			   as_json);
	PQclear(rows);
	db_close(db);
	return 0;
}

/* Prints the budget as it is now, and closes the database. */
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
	before = store_key_begin(db, ctl);
	if (!before) {
		made = db_ask(db, sql_query_budget_create, postgres_text(name),
			      postgres_text(currency), postgres_number(amount));
		if (PQntuples(made) == 0)
			log_fatal("NAME is \"%s\": a budget with this name exists", name);
		PQclear(made);
		db_run(db, "COMMIT");
	}
	cJSON_Delete(before);
	output_made("budget %s was made", name);
	changed_say(db, name, args_has(args, "json"));
	return 0;
}

static int edit_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *name = name_argument(args), *currency;
	char given[MONEY_SIZE], least[MONEY_SIZE];
	int status, waits, campaigns_n;
	PGresult *row, *set, *campaigns;
	struct redis_client *redis;
	struct redis_coupon loaded;
	int64_t amount, until_ms;
	struct db *db;

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

	/* Waits until the keeper has paused or resumed the campaigns by the new amount. */
	until_ms = clock_monotonic_ms() + KEEPER_WAIT_MS;
	do {
		campaigns = db_ask(db, sql_query_budget_campaigns, postgres_text(name));
		campaigns_n = PQntuples(campaigns);
		waits = 0;
		for (int i = 0; i < campaigns_n && !waits; i++)
			waits = db_is_true(campaigns, i, "is_due") ||
				(redis_coupon_read(redis, column_number(campaigns, i, "id"),
						   &loaded) == 1 &&
				 loaded.version < column_number(campaigns, i, "version"));
		PQclear(campaigns);
	} while (waits && usleep(KEEPER_POLL_US) == 0 && clock_monotonic_ms() < until_ms);
	if (waits)
		say_warning("no keeper has paused or resumed the campaigns "
			    "of this budget yet: a coupon-worker does it");
	status = campaigns_n > 0 ? store_gateways_wait(db, redis, STORE_NEWS_TERMS) : 0;
	redis_client_free(redis);
	changed_say(db, name, args_has(args, "json"));
	return status;
}

#define AMOUNT_OPTION \
	OPTION("amount", ARGS_MONEY, "the most that its campaigns may give away in all")

static const struct command budget_create_command = {
	.name = "budget create",
	.run = create_run,
	.argument = "NAME",
	.options = OPTIONS(AMOUNT_OPTION,
			   OPTION("currency", "CODE", "three capital letters as of ISO 4217"),
			   KEY_OPTION, BY_OPTION),
	.summary = "create a budget",
	.detail =
		"--amount and --currency are required. NAME has 1 to 64 letters, digits, '.', '_'\n"
		"and '-'. AMOUNT is written with all digits of the currency after the point, or\n"
		"without a point: 50000.00 EUR, 50000 JPY. A campaign takes from the budget if it\n"
		"was created or edited with --budget NAME.",
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
	.summary = "print a budget, its campaigns, and the changes of its amount",
};

static const struct command budget_edit_command = {
	.name = "budget edit",
	.run = edit_run,
	.argument = "NAME",
	.options = OPTIONS(AMOUNT_OPTION, BY_OPTION),
	.summary = "set the amount of a budget",
	.detail = "--amount is required. It is absolute, so repeating the command changes nothing. "
		  "It\n"
		  "cannot be less than what is spent and held.",
};

const struct command budget_command = {
	.name = "budget",
	.subcommands = COMMANDS(&budget_create_command, &budget_list_command, &budget_show_command,
				&budget_edit_command),
	.summary = "create, list, show and edit budgets of campaigns",
};
