/*
 * couponctl webhook: the list of its commands, and those that look: list, show, deliveries, test.
 */
#include "ctl/webhook/webhook.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"
#include "events/post.h"
#include "events/signature.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEBHOOKS_MAX 1000 /* that webhook_add.sql allows */
#define COUNT_DEFAULT 20
#define COUNT_MAX 10000
#define TYPE "webhook.test"

/* Of sql_query_webhook_list. */
static const struct column hook_columns[] = {
	{ "webhook", "id", COLUMN_ID },
	{ "url", "url", COLUMN_TEXT },
	{ "coupon", "coupon_id", COLUMN_ID },
	{ "types", "types", COLUMN_LIST },
	{ "state", "state", COLUMN_TEXT },
	{ "why", "state_why", COLUMN_TEXT },
	{ "state_by", "state_by", COLUMN_TEXT },
	{ "state_at", "state_at", COLUMN_TEXT },
	{ "batch", "batch_max", COLUMN_NUMBER },
	{ "queue", "queue_max", COLUMN_NUMBER },
	{ "waiting", "waiting_num", COLUMN_NUMBER },
	{ "given_up", "failed_num", COLUMN_NUMBER },
	{ "failures", "failures_num", COLUMN_NUMBER },
	{ "failing_since", "failing_since", COLUMN_TEXT },
	{ "paused_until", "pause_until", COLUMN_TEXT },
	{ "delivered_events", "delivered_num", COLUMN_NUMBER },
	{ "delivered_at", "delivered_at", COLUMN_TEXT },
	{ "dropped_events", "dropped_num", COLUMN_NUMBER },
	{ "dropped_at", "dropped_at", COLUMN_TEXT },
	{ "created_by", "created_by", COLUMN_TEXT },
	{ "created_at", "created_at", COLUMN_TEXT },
	{ .name = NULL },
};

void hook_absent(int64_t id)
{
	log_fatal("there is no webhook %lld", (long long)id);
}

PGresult *hook_row(struct db *db, int64_t id)
{
	PGresult *row = db_ask(db, sql_query_webhook_list, postgres_number(0), postgres_number(1),
			       postgres_number(id));

	if (PQntuples(row) == 0)
		hook_absent(id);
	return row;
}

/* The valid secrets. */
static PGresult *secrets_read(struct db *db, int64_t webhook)
{
	return db_ask(db, sql_query_webhook_secrets, postgres_number(webhook));
}

static int list_run(struct ctl *ctl)
{
	int as_json = args_has(&ctl->args, "json");
	struct db *db = store_postgres_open(ctl);
	PGresult *rows = db_ask(db, sql_query_webhook_list, postgres_number(0),
				postgres_number(WEBHOOKS_MAX), postgres_text(NULL));

	db_close(db);
	if (!as_json)
		printf("%-8s %-9s %-20s %9s %9s %9s  %s\n", "webhook", "state", "coupon", "waiting",
		       "given up", "dropped", "url");
	output_rows(rows, hook_columns,
		    "{id:-8} {state:-9} {coupon_id:-20|every} {waiting_num:9} {failed_num:9} "
		    "{dropped_num:9}  {url}\n",
		    as_json);
	PQclear(rows);
	return 0;
}

static const char *fingerprint(const PGresult *secrets, int row, char out[SECRET_FINGERPRINT_SIZE])
{
	const char *text = db_text(secrets, row, "secret");
	struct secret secret;

	if (secret_parse(&secret, text, strlen(text)))
		return "unreadable";
	secret_fingerprint(&secret, out);
	OPENSSL_cleanse(&secret, sizeof(secret));
	return out;
}

static cJSON *secrets_json(const PGresult *secrets)
{
	cJSON *list = cJSON_CreateArray();

	check(list != NULL);
	for (int row = 0; row < PQntuples(secrets); row++) {
		char digits[SECRET_FINGERPRINT_SIZE];
		cJSON *object = output_object();

		output_text(object, "fingerprint", fingerprint(secrets, row, digits));
		output_text(object, "created_by", db_text(secrets, row, "created_by"));
		output_text(object, "created_at", db_text(secrets, row, "created_at"));
		output_text(object, "expires_at", db_text(secrets, row, "expires_at"));
		cJSON_AddItemToArray(list, object);
	}
	return list;
}

static void secrets_print(const PGresult *secrets)
{
	for (int row = 0; row < PQntuples(secrets); row++) {
		const char *expires = db_text(secrets, row, "expires_at");
		char digits[SECRET_FINGERPRINT_SIZE];

		printf("  %-14s fingerprint %s of %s%s%s\n", "secret",
		       fingerprint(secrets, row, digits), db_text(secrets, row, "created_at"),
		       *expires ? ", valid until " : "", expires);
	}
}

static const char show_template[] =
	"webhook {id} to {url}\n"
	"  coupon         {coupon_id|every}\n"
	"  types          {types|all}\n"
	"  state          {state} since {state_at}, by {state_by}\n"
	"[state_why   why            {state_why}\n]"
	"  queue          {waiting_num} requests wait, {failed_num} are given up; at most "
	"{queue_max} of {batch_max} events each\n"
	"  delivered      {delivered_num} events\n"
	"[delivered_at   delivered at   {delivered_at}\n]"
	"[failing_since   failing since  {failing_since}\n]"
	"[pause_until   paused until   {pause_until}\n]"
	"[dropped_num   dropped        {dropped_num} events, the last at {dropped_at}\n]"
	"  created        {created_at}, by {created_by}\n";

static int show_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	PGresult *hook = hook_row(db, webhook), *secrets = secrets_read(db, webhook);

	if (args_has(&ctl->args, "json")) {
		cJSON *object = output_object();

		output_columns(object, hook_columns, hook, 0);
		output_add(object, "secrets", secrets_json(secrets));
		output_print(object);
	} else {
		output_template(show_template, hook, 0);
		secrets_print(secrets);
	}
	PQclear(secrets);
	PQclear(hook);
	db_close(db);
	return 0;
}

static const struct column delivery_columns[] = {
	{ "delivery", "id", COLUMN_ID },
	{ "message", "message", COLUMN_TEXT },
	{ "coupon", "coupon_id", COLUMN_ID },
	{ "type", "type", COLUMN_TEXT },
	{ "events", "events_num", COLUMN_NUMBER },
	{ "bytes", "bytes_num", COLUMN_NUMBER },
	{ "state", "state", COLUMN_TEXT },
	{ "attempts", "attempts", COLUMN_NUMBER },
	{ "created_at", "created_at", COLUMN_TEXT },
	{ "next_at", "next_at", COLUMN_TEXT },
	{ "last_at", "last_at", COLUMN_TEXT },
	{ "last_status", "last_status", COLUMN_SOME },
	{ "last_error", "last_why", COLUMN_TEXT },
	{ .name = NULL },
};

static const char *state_wanted(const struct args *args)
{
	if (args_has(args, "waiting") && args_has(args, "failed"))
		args_fail("--waiting and --failed are given: allowed is one of them");
	if (args_has(args, "waiting"))
		return "waiting";
	return args_has(args, "failed") ? "failed" : NULL;
}

static int deliveries_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *state = state_wanted(args);
	int64_t webhook = args_argument_id(args), after = args_id(args, "after"),
		count = args_number(args, "count", 1, COUNT_MAX, COUNT_DEFAULT);
	struct db *db = store_postgres_open(ctl);
	PGresult *rows;

	PQclear(hook_row(db, webhook));
	rows = db_ask(db, sql_query_webhook_deliveries, postgres_number(webhook),
		      postgres_text(state), postgres_number(after), postgres_number(count));
	db_close(db);
	if (!args_has(args, "json"))
		printf("%-10s %-8s %-20s %-17s %6s %8s  %-24s  %s\n", "delivery", "state", "coupon",
		       "type", "events", "attempts", "next", "last answer");
	output_rows(rows, delivery_columns,
		    "{id:-10} {state:-8} {coupon_id:-20} {type:-17} {events_num:6} {attempts:8}  "
		    "{next_at:-24|-}  [last_status {last_status}[last_why  ]]{last_why}\n",
		    args_has(args, "json"));
	PQclear(rows);
	return 0;
}

/* The secrets as one text, separated by spaces; to be freed. */
static char *secrets_join(const PGresult *secrets)
{
	char *text = calloc(1, 1);

	check(text != NULL);
	for (int row = 0; row < PQntuples(secrets); row++) {
		char *longer;

		check(asprintf(&longer, "%s%s%s", text, row ? " " : "",
			       db_text(secrets, row, "secret")) >= 0);
		free(text);
		text = longer;
	}
	return text;
}

/* A batch of one event; to be freed. */
static char *body_make(int64_t webhook, const char *id)
{
	char now[CLOCK_RFC3339_SIZE], *body;

	check(asprintf(&body,
		       "[{\"specversion\":\"1.0\",\"id\":\"%s\",\"source\":\"/couponctl\","
		       "\"type\":\"" TYPE "\",\"time\":\"%s\",\"data\":{\"webhook\":\"%lld\"}}]",
		       id, clock_rfc3339(clock_wall_ms(), now), (long long)webhook) >= 0);
	return body;
}

static void body_send(const struct ctl *ctl, const struct post_request *request,
		      struct post_result *result)
{
	struct rules rules;
	struct post *post;

	rules_read(&rules, &ctl->config);
	check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
	post = post_new(&rules, request, result);
	if (post)
		post_result(post, curl_easy_perform(post_handle(post)), result);
	post_free(post);
	curl_global_cleanup();
}

static void result_print(const char *url, const struct post_result *result)
{
	if (result->status)
		printf("%s answered %d after %lld ms%s%s\n", url, result->status,
		       (long long)result->duration_ms, *result->why ? ": " : "", result->why);
	else
		printf("%s gave no answer in %lld ms: %s\n", url, (long long)result->duration_ms,
		       result->why);
}

static void result_json(const char *url, const char *message, const struct post_result *result)
{
	cJSON *object = output_object();

	output_text(object, "url", url);
	output_text(object, "message", message);
	output_bool(object, "delivered", post_is_delivered(result));
	if (result->status)
		output_number(object, "status", result->status);
	else
		output_null(object, "status");
	output_number(object, "duration_ms", result->duration_ms);
	output_text(object, "error", result->why);
	output_print(object);
}

static int test_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	PGresult *hook = hook_row(db, webhook), *rows = secrets_read(db, webhook);
	char *secrets = secrets_join(rows), id[ULID_SIZE], message[ULID_SIZE + 4], *body;
	struct post_request request = { .url = db_text(hook, 0, "url"), .secrets = secrets };
	struct post_result result;
	struct ulid ulid;

	db_close(db);
	ulid_new(&ulid, clock_wall_ms());
	ulid_format(&ulid, id);
	snprintf(message, sizeof(message), "msg_%s", id);
	body = body_make(webhook, id);
	request.message = message;
	request.body = body;
	body_send(ctl, &request, &result);
	if (args_has(&ctl->args, "json"))
		result_json(request.url, message, &result);
	else
		result_print(request.url, &result);
	free(body);
	free(secrets);
	PQclear(rows);
	PQclear(hook);
	return post_is_delivered(&result) ? 0 : 1;
}

static const struct option lines_options[] = {
	SWITCH("json", "print one JSON object a line"),
	OPTIONS_END,
};

static const struct option json_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

static const struct option deliveries_options[] = {
	SWITCH("waiting", "only those that are sent or tried again"),
	SWITCH("failed", "only those that were given up"),
	OPTION("after", "DELIVERY", "only those with a higher id"),
	OPTION("count", "N", "at most N, 1 to 10000; default 20"),
	SWITCH("json", "print one JSON object a line"),
	OPTIONS_END,
};

static const struct command webhook_list_command = {
	.name = "webhook list",
	.run = list_run,
	.options = lines_options,
	.summary = "list the webhooks by id",
	.detail = "Waiting and given up are requests, dropped are events.",
};

static const struct command webhook_show_command = {
	.name = "webhook show",
	.run = show_run,
	.argument = "ID",
	.options = json_options,
	.summary = "show a webhook, its queue, and the fingerprints of its secrets",
};

static const struct command webhook_deliveries_command = {
	.name = "webhook deliveries",
	.run = deliveries_run,
	.argument = "ID",
	.options = deliveries_options,
	.summary = "list the requests of a webhook that have not arrived, the oldest first",
	.detail = "A request that has arrived is not kept.",
};

static const struct command webhook_test_command = {
	.name = "webhook test",
	.run = test_run,
	.argument = "ID",
	.options = json_options,
	.summary = "send one event of the type " TYPE " now, and print the answer",
	.detail =
		"Also to a disabled webhook. It is sent by this program, not by a worker, by the\n"
		"same settings, and is not repeated. The exit status is 0 if it arrived, else 1.",
};

static const struct command *const webhook_commands[] = {
	&webhook_add_command,
	&webhook_list_command,
	&webhook_show_command,
	&webhook_test_command,
	&webhook_rotate_command,
	&webhook_disable_command,
	&webhook_enable_command,
	&webhook_remove_command,
	&webhook_deliveries_command,
	&webhook_resend_command,
	NULL,
};

const struct command webhook_command = {
	.name = "webhook",
	.subcommands = webhook_commands,
	.summary = "send events to endpoints of others, and see what has arrived",
};
