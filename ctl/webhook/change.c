/*
 * couponctl webhook: the commands that change something: add, rotate, disable, enable, remove,
 * resend.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/webhook/webhook.h"
#include "embed.h"
#include "events/signature.h"
#include "events/signature.h"
#include "events/endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_DEFAULT 100
#define QUEUE_DEFAULT 10000
#define WEBHOOKS_MAX "1,000"
#define TYPES_SIZE 256
#define DAY_S 86400
#define OVERLAP_S_MAX (30 * DAY_S)
#define WHY_BYTES_MAX 500

#define SECRET_FILE_OPTION                                                                     \
	OPTION("secret-file", "FILE",                                                          \
	       "a file whose first line is the secret, " SECRET_PREFIX " and 24 to 64 bytes\n" \
	       "      in base64; default: a new one")

static const char *const event_types[] = {
#define EVENT(name, text) text,
#include "common/message/event_table.h"
#undef EVENT
};

#define TYPES_N (sizeof(event_types) / sizeof(event_types[0]))

/* The secret of a webhook: one that is made, or that of --secret-file. */
struct new_secret {
	char text[SECRET_TEXT_SIZE];
	int is_made; /* then it is to be printed, once */
};

static void secret_read(char text[SECRET_TEXT_SIZE], const char *path)
{
	char line[SECRET_TEXT_SIZE + 2];
	struct secret secret;
	FILE *file = fopen(path, "re");

	if (!file)
		args_fail("--secret-file is \"%s\": the file cannot be read: %s", path,
			  strerror(errno));
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\r\n")] = '\0';
	if (secret_parse(&secret, line, strlen(line)))
		args_fail("--secret-file is \"%s\": its first line is no secret; allowed "
			  "is " SECRET_PREFIX " and %d to %d bytes in base64",
			  path, SECRET_BYTES_LEAST, SECRET_BYTES_MOST);
	snprintf(text, SECRET_TEXT_SIZE, "%.*s", SECRET_TEXT_SIZE - 1, line);
}

/* A file that cannot be read, or has no secret, ends the process. */
static void new_secret_get(struct new_secret *secret, const struct args *args)
{
	const char *path = args_text(args, "secret-file");

	secret->is_made = !path;
	if (path)
		secret_read(secret->text, path);
	else
		secret_make(secret->text);
}

/*
 * Those before stay valid for `overlap_s`. 0, or -1: the webhook is absent or has too many.
 */
static int new_secret_store(struct db *db, int64_t webhook, const struct new_secret *secret,
			    int64_t overlap_s)
{
	PGresult *row = db_ask(db, sql_query_webhook_secret_add, postgres_number(webhook),
			       postgres_text(secret->text), postgres_number(overlap_s));
	int is_stored = PQntuples(row) > 0;

	PQclear(row);
	return is_stored ? 0 : -1;
}

/* Prints the id, and a secret that was made. */
static void new_secret_print(int64_t webhook, const struct new_secret *secret, int as_json)
{
	cJSON *object;

	if (!as_json) {
		printf("webhook %" PRId64 "\n", webhook);
		if (secret->is_made)
			printf("secret %s\n", secret->text);
		return;
	}
	object = output_object();
	output_id(object, "webhook", webhook);
	output_text(object, "secret", secret->is_made ? secret->text : "");
	output_print(object);
}

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
	PGresult *row = db_ask(db, sql_query_webhook_add, postgres_text(wanted->url),
			       db_id(wanted->coupon), postgres_text(wanted->types),
			       postgres_number(wanted->batch), postgres_number(wanted->queue));
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
	db = store_changing_open(ctl, NULL);
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

/* "24h" in seconds; -1: it is no duration. */
static int64_t duration_parse(const char *text)
{
	static const struct {
		const char *unit;
		int64_t seconds;
	} units[] = { { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", DAY_S } };
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (errno || end == text || *text < '0' || *text > '9' || number > OVERLAP_S_MAX)
		return -1;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0)
			return number * units[i].seconds;
	return -1;
}

static int64_t overlap_read(const struct args *args)
{
	const char *text = args_text(args, "overlap");
	int64_t seconds = text ? duration_parse(text) : DAY_S;

	if (seconds < 0 || seconds > OVERLAP_S_MAX)
		args_fail("--overlap is \"%s\": allowed is a number of s, m, h or d from 0s to 30d",
			  text);
	return seconds;
}

static int rotate_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args), overlap_s = overlap_read(&ctl->args);
	struct new_secret secret;
	struct db *db;

	new_secret_get(&secret, &ctl->args);
	db = store_changing_open(ctl, NULL);
	PQclear(hook_row(db, webhook));
	if (new_secret_store(db, webhook, &secret, overlap_s))
		log_fatal("webhook %lld has %d valid secrets, and no more are allowed: wait until "
			  "one expires, or use --overlap 0s",
			  (long long)webhook, SIGNATURES_MAX);
	db_close(db);
	new_secret_print(webhook, &secret, args_has(&ctl->args, "json"));
	return 0;
}

static void wake(struct db *db)
{
	db_do(db, sql_query_webhook_wake);
}

/* Ends the process when the statement has found no such webhook. */
static void hook_check(int64_t webhook, PGresult *row)
{
	if (PQntuples(row) == 0)
		hook_absent(webhook);
	PQclear(row);
}

static void state_set(struct db *db, int64_t webhook, const char *state, const char *why)
{
	hook_check(webhook, db_ask(db, sql_query_webhook_state_set, postgres_number(webhook),
				   postgres_text(state), postgres_text(why)));
}

static int disable_run(struct ctl *ctl)
{
	const char *why = args_text(&ctl->args, "why");
	struct db *db;

	if (why && (!*why || strlen(why) > WHY_BYTES_MAX))
		args_fail("--why has %zu bytes: allowed are 1 to %d", strlen(why), WHY_BYTES_MAX);
	db = store_changing_open(ctl, NULL);
	state_set(db, args_argument_id(&ctl->args), "disabled", why);
	db_close(db);
	return 0;
}

static int enable_run(struct ctl *ctl)
{
	struct db *db = store_changing_open(ctl, NULL);

	state_set(db, args_argument_id(&ctl->args), "enabled", NULL);
	wake(db);
	db_close(db);
	return 0;
}

static int remove_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args);
	struct db *db = store_changing_open(ctl, NULL);

	hook_check(webhook, db_ask(db, sql_query_webhook_remove, postgres_number(webhook)));
	db_close(db);
	return 0;
}

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
	char grouped[OUTPUT_GROUPED_SIZE];
	struct db *db = store_changing_open(ctl, NULL);
	PGresult *hook = hook_row(db, webhook), *rows;
	int rows_n;

	rows = db_ask(db, sql_query_webhook_resend, postgres_number(webhook), db_id(delivery));
	rows_n = PQntuples(rows);
	PQclear(rows);
	if (delivery && rows_n == 0)
		log_fatal("webhook %" PRId64 " has no delivery %" PRId64 " that was given up",
			  webhook, delivery);
	wake(db);
	db_close(db);
	disabled_warn(hook);
	PQclear(hook);
	if (args_has(&ctl->args, "json"))
		printf("{\"webhook\":\"%" PRId64 "\",\"resent\":%d}\n", webhook, rows_n);
	else
		printf("webhook %" PRId64 ": %s to be sent again\n", webhook,
		       output_grouped(rows_n, grouped));
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

static const struct option rotate_options[] = {
	OPTION("overlap", "TIME",
	       "for how long the secrets before stay valid: 90s, 30m, 24h, 7d; up to 30d;\n"
	       "      default 24h"),
	SECRET_FILE_OPTION,
	SWITCH("json", "print {\"webhook\":\"ID\",\"secret\":\"SECRET\"}"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command webhook_rotate_command = {
	.name = "webhook rotate",
	.run = rotate_run,
	.argument = "ID",
	.options = rotate_options,
	.summary = "give a webhook a new secret",
	.detail = "Prints the new secret; it is not printed again. Until the overlap ends every\n"
		  "request has a signature with each secret.",
};

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
