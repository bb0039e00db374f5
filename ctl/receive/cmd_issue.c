/*
 * couponctl issue and status: one request over the gateway's socket API, whose reply is printed.
 * couponctl receive sends its requests by the same function.
 */
#include "client/client.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/answer.h"
#include "common/message/json.h"
#include "common/message/receive.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints the reply of the gateway for people: with amounts as they are written. */
static void reply_print(const cJSON *reply, int depth)
{
	static const char *const amounts[] = { "amount", "amount_off", "cap", "threshold" };
	const char *currency = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(reply, "currency"));
	char text[MONEY_SIZE];

	for (const cJSON *item = reply->child; item; item = item->next) {
		const char *name = item->string ? item->string : "-", *value = item->valuestring;
		int is_amount = 0;

		if (cJSON_IsArray(item) || cJSON_IsObject(item)) {
			printf("%*s%s\n", depth, "", name);
			reply_print(item, depth + 2);
			continue;
		}
		if (cJSON_IsNull(item))
			continue;
		for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++)
			is_amount |= strcmp(name, amounts[i]) == 0;
		if (cJSON_IsBool(item))
			value = cJSON_IsTrue(item) ? "true" : "false";
		if (cJSON_IsNumber(item)) {
			value = text;
			if (currency && is_amount)
				money_text((int64_t)item->valuedouble, currency, text);
			else
				snprintf(text, sizeof(text), "%.0f", item->valuedouble);
		}
		printf("%*s%-10s %s\n", depth, "", name, value);
	}
}

int gateway_request_run(struct ctl *ctl, cJSON *request, int unanswered)
{
	char *text = checked(json_write(request)), *reply;
	struct json_arena *arena = json_arena_new();
	const char *error, *answer, *message;
	const cJSON *root;
	int64_t code;
	int status;

	reply = gateway_exchange(&ctl->config, text, CTL_AWAY, unanswered);
	root = json_parse(arena, reply, strlen(reply), &error);
	if (!root ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, INT32_MAX, &code))
		log_fatal_as(unanswered, "the gateway's reply has no code: %s", reply);
	answer = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "status"));
	if (unanswered == CTL_UNKNOWN &&
	    (code == answer_code(ANSWER_OK) || code == answer_code(ANSWER_UNKNOWN)))
		output_made("the gateway answered %s", answer ? answer : reply);
	if (args_has(&ctl->args, "json"))
		puts(reply);
	else if (code < answer_code(ANSWER_BUSY))
		reply_print(root, 0);

	/* From busy on: the request was not decided, or it is unknown whether it was. */
	message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "message"));
	if (code == answer_code(ANSWER_BAD_REQUEST))
		args_fail("%s", message ? message : "");
	if (code < answer_code(ANSWER_BUSY)) {
		status = code == answer_code(ANSWER_OK) ? CTL_DONE : CTL_FAILED;
	} else if (code == answer_code(ANSWER_KEY_REUSED)) {
		say("%s", message ? message : "");
		status = CTL_KEY_REUSED;
	} else {
		say("%s: %s%s", answer ? answer : "", message ? message : "",
		    code == answer_code(ANSWER_UNAUTHORIZED)
			    ? ": the gateway needs an API key or a token in COUPON_GATEWAY_KEY"
		    : code == answer_code(ANSWER_FORBIDDEN)
			    ? ": COUPON_GATEWAY_KEY has no right to do this"
			    : "");
		status = code == answer_code(ANSWER_UNKNOWN)      ? CTL_UNKNOWN
			 : code < answer_code(ANSWER_BAD_REQUEST) ? CTL_AWAY
								  : CTL_FAILED;
	}

	free(reply);
	json_arena_free(arena);
	cJSON_free(text);
	cJSON_Delete(request);
	return status;
}

static const char *const levels[] = { "accepted", "queued", "issued", NULL };

static int issue_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *key = args_text(args, "key");
	cJSON *request = output_object();
	struct receive receive;

	output_text(request, "op", "issue");
	args_coupon_user(args, &receive);
	output_id(request, "coupon", receive.coupon);
	output_text(request, "user", receive.user.text);
	if (key && !receive_key_valid(key, strlen(key)))
		args_fail("--key is \"%s\": allowed are 1 to %d bytes of printable ASCII", key,
			  RECEIVE_KEY_MAX);
	if (key)
		output_text(request, "key", key);
	if (args_has(args, "ack"))
		output_text(request, "ack", levels[args_choice(args, "ack", 0)]);
	return gateway_request_run(ctl, request, CTL_UNKNOWN);
}

static int status_run(struct ctl *ctl)
{
	cJSON *request = output_object();
	struct receive receive;

	output_text(request, "op", "status");
	args_receive(&ctl->args, &receive);
	if (ctl->args.argument) {
		output_text(request, "receive", ctl->args.argument);
	} else {
		output_id(request, "coupon", receive.coupon);
		output_text(request, "user", receive.user.text);
	}
	return gateway_request_run(ctl, request, CTL_AWAY); /* a repeated status changes nothing */
}

const struct command issue_command = {
	.name = "issue",
	.run = issue_run,
	.options = OPTIONS(
		OPTION("coupon", "ID", "the coupon"), OPTION("user", "ID", "the user"),
		OPTION("key", "KEY",
		       "idempotency key, 1 to 255 bytes of printable ASCII: a repeated key "
		       "returns the same receive"),
		OPTION_WORDS("ack", "LEVEL", levels,
			     "the gateway replies when the receive is accepted (default), queued "
			     "or issued")),
	.summary = "request a coupon for a user",
	.detail = "--coupon and --user are required. The command sends the request to the gateway "
		  "at\n"
		  "COUPON_LISTEN; with --json it prints the reply unchanged.",
};

const struct command status_command = {
	.name = "status",
	.run = status_run,
	.argument = "[RECEIVE]",
	.options = RECEIVE_OPTIONS,
	.summary = "print the status of a receive, or of all receives of a user",
	.detail = "The command sends the request to the gateway at COUPON_LISTEN; with --json it\n"
		  "prints the reply unchanged.",
};
