/* couponctl webhook add: a new webhook and its secret. */
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/by.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/webhook/new_secret.h"
#include "embed.h"
#include "events/endpoint.h"

#include <stdio.h>
#include <string.h>

#define BATCH_DEFAULT 100
#define QUEUE_DEFAULT 10000
#define WEBHOOKS_MAX "1,000"

static const char *const event_types[] = {
#define EVENT(name, text) text,
#include "common/message/event_table.h"
#undef EVENT
};

#define TYPES_N (sizeof(event_types) / sizeof(event_types[0]))
#define TYPES_SIZE 256

struct wanted {
	const char *url;
	int64_t coupon;         /* 0: every one */
	char types[TYPES_SIZE]; /* as an array of PostgreSQL */
	int64_t batch;
	int64_t queue;
};

static void url_read(const struct ctl *ctl)
{
	const char *url = ctl->args.argument;
	char why[URL_WHY_SIZE];
	struct rules rules;

	rules_read(&rules, &ctl->config);
	if (url_check(url, &rules, why))
		args_fail("URL is \"%s\": %s", url, why);
}

static int is_type(const char *name, size_t len)
{
	for (size_t i = 0; i < TYPES_N; i++)
		if (strlen(event_types[i]) == len && memcmp(event_types[i], name, len) == 0)
			return 1;
	return 0;
}

_Noreturn static void types_fail(const char *given)
{
	char allowed[TYPES_SIZE] = "";
	size_t n = 0;

	for (size_t i = 0; i < TYPES_N; i++)
		n += (size_t)snprintf(allowed + n, sizeof(allowed) - n, "%s%s", i ? ", " : "",
				      event_types[i]);
	args_fail("--types is \"%s\": allowed are %s, each once, separated by commas", given,
		  allowed);
}

static void types_read(const struct args *args, char array[TYPES_SIZE])
{
	const char *given = args_text(args, "types");
	size_t n = 0;

	array[n++] = '{';
	for (const char *p = given; p;) {
		size_t len = strcspn(p, ",");

		if (!is_type(p, len) || memmem(array, n, p, len))
			types_fail(given);
		check(n + len + 3 < TYPES_SIZE);
		memcpy(array + n, p, len);
		n += len;
		array[n++] = ',';
		p = p[len] ? p + len + 1 : NULL;
	}
	if (array[n - 1] == ',')
		n--;
	memcpy(array + n, "}", 2);
}

static void wanted_read(struct wanted *wanted, const struct ctl *ctl)
{
	const struct args *args = &ctl->args;

	url_read(ctl);
	wanted->url = args->argument;
	wanted->coupon = args_id(args, "coupon");
	types_read(args, wanted->types);
	wanted->batch = args_number(args, "batch", 1, 1000, BATCH_DEFAULT);
	wanted->queue = args_number(args, "queue", 1, 1000000, QUEUE_DEFAULT);
}

static int64_t webhook_store(struct db *db, const struct wanted *wanted)
{
	char coupon[DB_NUMBER_SIZE], batch[DB_NUMBER_SIZE], queue[DB_NUMBER_SIZE];
	PGresult *row = db_query(db, sql_query_webhook_add, 5,
				 (const char *[]){
					 wanted->url,
					 wanted->coupon ? db_number(wanted->coupon, coupon) : NULL,
					 wanted->types, db_number(wanted->batch, batch),
					 db_number(wanted->queue, queue) });
	int64_t webhook;

	if (PQntuples(row) == 0)
		log_fatal("there are " WEBHOOKS_MAX " webhooks, and no more are allowed");
	webhook = db_int(row, 0, "id");
	PQclear(row);
	return webhook;
}

static int add_run(struct ctl *ctl)
{
	struct new_secret secret;
	struct wanted wanted;
	int64_t webhook;
	struct db *db;

	wanted_read(&wanted, ctl);
	new_secret_get(&secret, &ctl->args);
	db = store_changing_open(ctl);
	if (wanted.coupon)
		PQclear(store_coupon_row(db, sql_query_coupon_show, wanted.coupon));
	db_run(db, "BEGIN");
	webhook = webhook_store(db, &wanted);
	check(new_secret_store(db, webhook, &secret, 0) == 0);
	db_run(db, "COMMIT");
	db_close(db);
	new_secret_print(webhook, &secret, args_has(&ctl->args, "json"));
	return 0;
}

static const struct option add_options[] = {
	OPTION("coupon", "ID", "only events of this coupon; default: of every coupon"),
	OPTION("types", "LIST",
	       "only events of these types: coupon.issued, coupon.rejected, coupon.voided,\n"
	       "      campaign.changed, separated by commas; default: all"),
	OPTION("batch", "N", "at most N events in a request, 1 to 1000; default 100"),
	OPTION("queue", "N",
	       "at most N requests are kept while they cannot be delivered, 1 to 1000000;\n"
	       "      default 10000"),
	SECRET_FILE_OPTION,
	SWITCH("json", "print {\"webhook\":\"ID\",\"secret\":\"SECRET\"}"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command webhook_add_command = {
	.name = "webhook add",
	.run = add_run,
	.argument = "URL",
	.options = add_options,
	.summary = "send events to a URL from now on",
	.detail = "Prints the id of the webhook and its secret. The secret is not printed again.\n"
		  "Events are sent only of coupons that have them.",
};
