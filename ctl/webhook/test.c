/* couponctl webhook test: sends one event now, from this machine. */
#include "common/check.h"
#include "common/clock.h"
#include "common/message/ulid.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/webhook/hook.h"
#include "events/post.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE "webhook.test"

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
	PGresult *hook = hook_row(db, webhook), *rows = hook_secrets(db, webhook);
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

static const struct option test_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command webhook_test_command = {
	.name = "webhook test",
	.run = test_run,
	.argument = "ID",
	.options = test_options,
	.summary = "send one event of the type " TYPE " now, and print the answer",
	.detail =
		"Also to a disabled webhook. It is sent by this program, not by a worker, by the\n"
		"same settings, and is not repeated. The exit status is 0 if it arrived, else 1.",
};
