/*
 * couponctl receive: what orders do with receives, and what they did. list and show read
 * PostgreSQL. The other commands send one request over the gateway's socket API.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "embed.h"

#include <string.h>

static const char show_template[] =
	"receive {receive}: {state}[reason  ({reason})]\n"
	"[valid_from   valid  {valid_from} to {valid_to|no end}\n]"
	"[use   use    {use.state} by order {use.order}[use.until  until {use.until}]\n]";

#define PAGE 500
#define LIST_COUNT 1000

/* A query of one receive: by coupon, user, batch and index. */
static PGresult *receive_ask(struct db *db, const char *sql, const struct receive *receive)
{
	char batch[ULID_UUID_SIZE];

	return db_ask(db, sql, postgres_number(receive->coupon), postgres_text(receive->user.text),
		      postgres_text(ulid_to_uuid(&receive->batch, batch)),
		      postgres_number(receive->index));
}

struct cJSON *uses_read(struct db *db, const struct receive *receive)
{
	return output_array(receive_ask(db, sql_query_receive_operations, receive));
}

void uses_print(const struct cJSON *uses)
{
	const cJSON *one;

	cJSON_ArrayForEach(one, uses)
	{
		cJSON *use = checked(cJSON_Duplicate(one, 1));
		const char *currency;

		if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(use, "to")))
			cJSON_DeleteItemFromObjectCaseSensitive(use, "amount_off"); /* refused */
		currency = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(use, "currency"));
		if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(use, "action")),
			   "rollback") != 0)
			cJSON_DeleteItemFromObjectCaseSensitive(use, "amount"); /* the order's */
		output_money(use, "amount", currency);
		output_money(use, "amount_off", currency);
		output_template("  {at}  {action:-6} {result:-13} {from|-} -> {to|-}  order {order}"
				"[until , until {until}][amount , {amount} {currency} back]"
				"[amount_off , {amount_off} {currency} off][budget  of budget "
				"{budget}][by , by {by}], key {key}[reason : {reason}]\n",
				use);
		cJSON_Delete(use);
	}
}

static int show_run(struct ctl *ctl)
{
	int as_json = args_has(&ctl->args, "json");
	cJSON *object = output_object(), *uses;
	struct receive receive;
	PGresult *row;
	struct db *db;

	args_receive_argument(&ctl->args, &receive);
	db = store_postgres_open(ctl);
	row = store_receive_ask(db, sql_query_receive_outcome, RECEIVE_ARGS_N, &receive);
	if (PQntuples(row) == 0)
		log_fatal_as(CTL_ABSENT, "RECEIVE is \"%s\": PostgreSQL has no outcome of it",
			     ctl->args.argument);
	uses = uses_read(db, &receive);
	output_text(object, "receive", ctl->args.argument);
	output_row(object, row, 0);
	cJSON_DeleteItemFromObject(object, "ord");
	if (!db_is_null(row, 0, "use"))
		cJSON_ReplaceItemInObject(object, "use", cJSON_Parse(column_text(row, 0, "use")));
	if (as_json)
		output_add(object, "uses", uses);
	output_say(object, show_template, as_json);
	if (!as_json) {
		uses_print(uses);
		cJSON_Delete(uses);
	}
	PQclear(row);
	db_close(db);
	return 0;
}

/* The name of the command ends in that of the operation, and its options are members. */
static int request_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const struct option *option = args->command->options;
	const char *op = strrchr(args->command->name, ' ') + 1;
	cJSON *request = output_object();
	struct receive receive;

	if (strcmp(op, "quote") == 0 && !args->argument == !args_has(args, "user"))
		args_fail("receive quote takes either a receive or --user%s",
			  say_help("receive quote"));
	output_text(request, "op", op);
	if (args->argument) {
		args_receive_argument(args, &receive);
		if (strcmp(op, "quote") == 0)
			output_id(request, "coupon", receive.coupon);
		else
			output_text(request, "receive", args->argument);
	}
	for (; option->name; option++) {
		const char *name = strcmp(option->name, "ttl-s") == 0 ? "ttl_s" : option->name;

		if (!args_has(args, option->name))
			continue;
		if (strcmp(option->value, ARGS_MONEY) == 0)
			output_number(request, name,
				      args_money(args, option->name, args_currency(args), 0));
		else if (strcmp(option->value, "N") == 0)
			output_number(request, name,
				      args_number(args, option->name, 0, JSON_INTEGER_MAX, 0));
		else
			check(cJSON_AddStringToObject(request, name,
						      args_text(args, option->name)) != NULL);
	}
	return gateway_request_run(ctl, request, strcmp(op, "quote") == 0 ? CTL_AWAY : CTL_UNKNOWN);
}

/* A user coupon as an object. */
static cJSON *listed_object(const PGresult *rows, int row, const char *user)
{
	struct receive receive = { .coupon = column_number(rows, row, "coupon_id"),
				   .index = (int)column_number(rows, row, "idx") };
	cJSON *object = output_object();
	char text[RECEIVE_SIZE];

	check(user_id_parse(&receive.user, user, strlen(user)) == 0 &&
	      ulid_from_uuid(&receive.batch, column_text(rows, row, "batch")) == 0);
	receive_format(&receive, text);
	output_text(object, "receive", text);
	output_id(object, "coupon", receive.coupon);
	output_text(object, "name", column_text(rows, row, "name"));
	output_number(object, "slot", column_number(rows, row, "slot"));
	output_text(object, "state", db_is_true(rows, row, "is_voided") ? "voided" : "issued");
	output_text(object, "received_at", column_text(rows, row, "received_at"));
	output_text(object, "valid_from", column_text(rows, row, "valid_from"));
	output_text(object, "valid_to", column_text(rows, row, "valid_to"));
	if (db_is_null(rows, row, "use"))
		output_null(object, "use");
	else
		output_add(object, "use", checked(cJSON_Parse(column_text(rows, row, "use"))));
	return object;
}

static int list_run(struct ctl *ctl)
{
	static const char line[] =
		"{receive}  {name}: {state}[use , {use.state} by order {use.order}]"
		", received {received_at}, valid to {valid_to|no end}\n";
	const char *user = args_required(&ctl->args, "user");
	const char *after = args_text(&ctl->args, "after");
	int64_t count = args_count(&ctl->args, LIST_COUNT), n = 0;
	int64_t us = 0, coupon = 0, slot = 0; /* of the row before; 0: none */
	char why[USER_ID_WHY_SIZE];
	int as_json = args_has(&ctl->args, "json"), rows_n;
	struct receive last;
	struct user_id id;
	struct db *db;

	if (user_id_parse(&id, user, strlen(user))) {
		user_id_why(user, strlen(user), why);
		args_fail("--user %s", why);
	}
	if (after &&
	    (receive_parse(&last, after, strlen(after)) || strcmp(last.user.text, id.text) != 0))
		args_fail("--after is \"%s\": allowed is a receive of the user, as it was listed",
			  after);
	db = store_postgres_open(ctl);
	if (after) {
		PGresult *place = receive_ask(db, sql_query_receive_place, &last);

		if (PQntuples(place) == 0)
			log_fatal_as(CTL_ABSENT, "--after is \"%s\": the user has no such coupon",
				     after);
		us = column_number(place, 0, "received_us");
		coupon = last.coupon;
		slot = column_number(place, 0, "slot");
		PQclear(place);
	}
	do {
		int64_t limit = count - n < PAGE ? count - n : PAGE;
		PGresult *rows = db_ask(db, sql_query_user_coupon_page, postgres_text(user),
					db_id(us), db_id(coupon), db_id(slot),
					postgres_number(limit), postgres_text("false"));

		rows_n = PQntuples(rows);
		for (int row = 0; row < rows_n; row++)
			output_say(listed_object(rows, row, user), line, as_json);
		if (rows_n > 0) {
			us = column_number(rows, rows_n - 1, "received_us");
			coupon = column_number(rows, rows_n - 1, "coupon_id");
			slot = column_number(rows, rows_n - 1, "slot");
		}
		n += rows_n;
		PQclear(rows);
	} while (rows_n == PAGE && n < count);
	db_close(db);
	if (n == 0 && !as_json)
		printf("user %s has no coupon\n", user);
	return 0;
}

#define ORDER_OPTIONS                                                                        \
	OPTION("order", "ORDER", "the order: 1 to 64 bytes of printable ASCII"),             \
		OPTION("key", "KEY",                                                         \
		       "idempotency key, 1 to 255 bytes of printable ASCII: a repeated key " \
		       "changes nothing more"),                                              \
		OPTION("by", "NAME", "the caller that the history records; default: the API key")
#define CURRENCY_OPTION OPTION("currency", "CODE", "three capital letters as of ISO 4217")
#define AMOUNT_OPTIONS OPTION("amount", ARGS_MONEY, "the amount of the order"), CURRENCY_OPTION

#define REQUEST_COMMAND(name_, argument_, summary_, ...)                                         \
	{                                                                                        \
		.name = "receive " name_, .run = request_run, .argument = argument_,             \
		.options = OPTIONS(__VA_ARGS__), .summary = summary_,                            \
		.detail = "The command sends the request to the gateway at COUPON_LISTEN; with " \
			  "--json it\nprints the reply unchanged.",                              \
	}

static const struct command receive_hold_command =
	REQUEST_COMMAND("hold", "RECEIVE", "hold a receive for an order for some time",
			ORDER_OPTIONS, AMOUNT_OPTIONS,
			OPTION("ttl-s", "N",
			       "the duration of the hold, 1 to 86400 s; default 900"));
static const struct command receive_use_command =
	REQUEST_COMMAND("use", "RECEIVE",
			"use a receive for an order, whether the order holds it or not",
			ORDER_OPTIONS, AMOUNT_OPTIONS);
static const struct command receive_release_command =
	REQUEST_COMMAND("release", "RECEIVE", "end the hold of an order on a receive",
			ORDER_OPTIONS);
static const struct command receive_rollback_command =
	REQUEST_COMMAND("rollback", "RECEIVE",
			"undo the use of a receive by an order, or a part of its discount",
			ORDER_OPTIONS,
			OPTION("amount", ARGS_MONEY,
			       "the part of the discount to give back: the receive stays used; "
			       "default: all, and the receive is free"),
			CURRENCY_OPTION,
			OPTION("reason", "TEXT", "the reason: 1 to 200 bytes of printable ASCII"));
static const struct command receive_quote_command =
	REQUEST_COMMAND("quote", "[RECEIVE]",
			"print the discount of a receive on an amount, or of those of a user",
			OPTION("user", "USER",
			       "instead of a receive: those of this user that an order could use "
			       "now, the best first"),
			AMOUNT_OPTIONS);

static const struct command receive_show_command = {
	.name = "receive show",
	.run = show_run,
	.argument = "RECEIVE",
	.summary = "print which order has a receive, and what orders did with it",
	.detail = "The latest 1,000 operations are printed, each with its time, order, states,\n"
		  "result and caller.",
};

static const struct command receive_list_command = {
	.name = "receive list",
	.run = list_run,
	.options = OPTIONS(OPTION("user", "USER", "the user"),
			   PAGE_OPTIONS("RECEIVE", "receive", "1000")),
	.summary = "list the coupons of a user, of all campaigns",
	.detail = "The newest coupon comes first. Each row has the receive, whether it was voided, "
		  "and\n"
		  "which order holds or has used it. Receives that are not issued yet, or were\n"
		  "rejected, are not listed.",
};

const struct command receive_command = {
	.name = "receive",
	.subcommands = COMMANDS(&receive_list_command, &receive_show_command, &receive_hold_command,
				&receive_use_command, &receive_release_command,
				&receive_rollback_command, &receive_quote_command),
	.summary = "hold and use receives for orders, and print what orders did",
};
