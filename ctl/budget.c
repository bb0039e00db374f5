/*
 * couponctl budget: what campaigns may give in all. On the command line and for people an amount is
 * in units of its currency, in JSON in the smallest unit, as those of a discount.
 */
#include "common/log/log.h"
#include "common/message/api_key.h"
#include "common/message/json.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"
#define DIGITS_MOST 4
#define WHOLE_MOST 16
#define MONEY_SIZE 32

/* How many digits a currency has after the point, by ISO 4217. */
static int currency_digits(const char *currency)
{
	static const char *const others[] = {
		[0] = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
		[3] = "BHD IQD JOD KWD LYD OMR TND",
		[DIGITS_MOST] = "CLF UYW",
	};

	for (int digits = 0; digits <= DIGITS_MOST; digits++)
		if (others[digits] && strstr(others[digits], currency))
			return digits;
	return 2;
}

static char *money_text(int64_t amount, const char *currency, char out[MONEY_SIZE])
{
	int digits = currency_digits(currency), len;

	len = snprintf(out, MONEY_SIZE, "%0*" PRId64, digits + 1, amount);
	if (digits > 0) {
		memmove(out + len - digits + 1, out + len - digits, (size_t)digits + 1);
		out[len - digits] = '.';
	}
	return out;
}

/* --amount, with all digits after the point or none. */
static int64_t amount_read(const struct args *args, const char *currency)
{
	const char *text = args_required(args, "amount");
	size_t digits = (size_t)currency_digits(currency), whole = strspn(text, DIGITS);
	const char *part = text[whole] == '.' ? text + whole + 1 : "0000";
	int is_right = whole > 0 && whole <= WHOLE_MOST;
	char number[MONEY_SIZE], most[MONEY_SIZE];
	int64_t amount;

	if (text[whole])
		is_right &= digits > 0 && text[whole] == '.' && strlen(part) == digits &&
			    strspn(part, DIGITS) == digits;
	snprintf(number, sizeof(number), "%.*s%.*s", (int)whole, text, (int)digits, part);
	amount = strtoll(number, NULL, 10);
	if (!is_right || amount > JSON_INTEGER_MAX)
		args_fail("--amount is \"%s\": allowed is 0 to %s, as %s is written", text,
			  money_text(JSON_INTEGER_MAX, currency, most), currency);
	return amount;
}

static const char *name_argument(const struct args *args)
{
	const char *name = args->argument;

	if (!*name || strlen(name) > KEY_NAME_MAX || strspn(name, KEY_NAME_BYTES) != strlen(name))
		args_fail("NAME is \"%s\": allowed are 1 to %d letters, digits, '.', '_' and '-'",
			  name, KEY_NAME_MAX);
	return name;
}

/* The row of sql_query_budget_list; one that is absent ends the process. */
static PGresult *budget_row(struct db *db, const char *name)
{
	PGresult *row = db_ask(db, sql_query_budget_list, postgres_text(name));

	if (PQntuples(row) == 0)
		log_fatal_as(CTL_ABSENT, "there is no budget %s", name);
	return row;
}

/* A row with amounts. */
static cJSON *row_read(const PGresult *rows, int row, const char *currency, int as_json)
{
	static const char *const amounts[] = { "amount", "held", "spent", "left" };
	cJSON *object = output_object();
	char text[MONEY_SIZE];

	output_row(object, rows, row);
	for (size_t i = 0; !as_json && i < sizeof(amounts) / sizeof(amounts[0]); i++)
		if (cJSON_HasObjectItem(object, amounts[i]))
			cJSON_ReplaceItemInObject(object, amounts[i],
						  cJSON_CreateString(
							  money_text(column_number(rows, row,
										   amounts[i]),
								     currency, text)));
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
	PGresult *rows = db_ask(db, sql_query_budget_list, postgres_text(NULL));

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
	struct db *db;

	args_required(args, "currency");
	currency = args_currency(args);
	amount = amount_read(args, currency);
	db = store_changing_open(ctl, NULL);
	made = db_ask(db, sql_query_budget_create, postgres_text(name), postgres_text(currency),
		      postgres_number(amount));
	if (PQntuples(made) == 0)
		log_fatal("NAME is \"%s\": a budget with this name exists", name);
	PQclear(made);
	changed_say(db, name, args_has(args, "json"));
	return 0;
}

static int set_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *name = name_argument(args), *currency;
	char least[MONEY_SIZE];
	PGresult *row, *set;
	int64_t amount;
	struct db *db;

	args_required(args, "amount");
	db = store_changing_open(ctl, NULL);
	row = budget_row(db, name);
	currency = column_text(row, 0, "currency");
	amount = amount_read(args, currency);
	set = db_ask(db, sql_query_budget_set, postgres_text(name), postgres_number(amount));
	if (!db_is_true(set, 0, "is_set"))
		log_fatal("--amount is \"%s\": allowed is at least the %s that are spent or held",
			  args_text(args, "amount"),
			  money_text(column_number(set, 0, "taken"), currency, least));
	PQclear(set);
	PQclear(row);
	changed_say(db, name, args_has(args, "json"));
	return 0;
}

#define AMOUNT_OPTION                                                                         \
	OPTION("amount", "AMOUNT",                                                            \
	       "what its campaigns may give in all, in units of the currency: 50000.00 EUR, " \
	       "50000 JPY")

static const struct command budget_create_command = {
	.name = "budget create",
	.run = create_run,
	.argument = "NAME",
	.options = OPTIONS(AMOUNT_OPTION,
			   OPTION("currency", "CODE", "three capital letters as of ISO 4217"),
			   BY_OPTION,
			   SWITCH("json", "print what the budget is as one JSON object")),
	.summary = "make a budget",
	.detail = "Needs --amount and --currency. NAME has 1 to 64 letters, digits, '.', '_' and\n"
		  "'-'. Campaigns take from it by couponctl create and edit, --budget NAME.",
};

static const struct command budget_list_command = {
	.name = "budget list",
	.run = list_run,
	.options = OPTIONS(SWITCH("json", "print one JSON object a line")),
	.summary = "list the budgets by name",
};

static const struct command budget_show_command = {
	.name = "budget show",
	.run = show_run,
	.argument = "NAME",
	.options = OPTIONS(SWITCH("json", "print one JSON object")),
	.summary = "show a budget, its campaigns, and what operators have changed",
};

static const struct command budget_set_command = {
	.name = "budget set",
	.run = set_run,
	.argument = "NAME",
	.options = OPTIONS(AMOUNT_OPTION, BY_OPTION,
			   SWITCH("json", "print what the budget is now as one JSON object")),
	.summary = "give a budget another amount",
	.detail =
		"Needs --amount, which is absolute, so repeating the command changes nothing. It\n"
		"is never less than what is spent and held.",
};

const struct command budget_command = {
	.name = "budget",
	.subcommands = COMMANDS(&budget_create_command, &budget_list_command, &budget_show_command,
				&budget_set_command),
	.summary = "what campaigns may give in all",
};
