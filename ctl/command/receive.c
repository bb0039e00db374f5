/* couponctl issue and status: one request over the gateway's socket API. */
#include "common/message/answer.h"
#include "common/check.h"
#include "common/message/json.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/ctl.h"
#include "client/client.h"
#include "ctl/output.h"

#include <stdlib.h>
#include <string.h>

static void reply_print(const cJSON *reply, int depth)
{
	for (const cJSON *item = reply->child; item; item = item->next) {
		const char *name = item->string ? item->string : "-";

		if (cJSON_IsString(item))
			printf("%*s%-10s %s\n", depth, "", name, item->valuestring);
		else if (cJSON_IsNumber(item))
			printf("%*s%-10s %.0f\n", depth, "", name, item->valuedouble);
		else if (cJSON_IsBool(item))
			printf("%*s%-10s %s\n", depth, "", name,
			       cJSON_IsTrue(item) ? "true" : "false");
		else if (cJSON_IsArray(item) || cJSON_IsObject(item)) {
			printf("%*s%s\n", depth, "", name);
			reply_print(item, depth + 2);
		}
	}
}

/* Sends the request, prints the reply and frees the request. Returns the exit status. */
static int request_run(struct ctl *ctl, cJSON *request)
{
	char *text = checked(cJSON_PrintUnformatted(request)), *reply;
	struct json_arena *arena = json_arena_new();
	const char *error;
	const cJSON *root;
	int64_t code;

	reply = gateway_exchange(ctl->config.listen, text);
	root = json_parse(arena, reply, strlen(reply), &error);
	if (!root ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, INT32_MAX, &code))
		log_fatal("the gateway's reply has no code: %s", reply);
	if (args_has(&ctl->args, "json"))
		puts(reply);
	else
		reply_print(root, 0);
	free(reply);
	json_arena_free(arena);
	cJSON_free(text);
	cJSON_Delete(request);
	return code == answer_code(ANSWER_OK) ? 0 : 1;
}

/* The ids are strings: a number beyond 2^53-1 is refused. */
static void coupon_user_add(cJSON *request, const struct receive *receive)
{
	output_id(request, "coupon", receive->coupon);
	output_text(request, "user", receive->user.text);
}

static int issue_run(struct ctl *ctl)
{
	static const char *const levels[] = { "accepted", "queued", "issued" };
	const struct args *args = &ctl->args;
	const char *key = args_text(args, "key");
	cJSON *request = output_object();
	struct receive receive;

	output_text(request, "op", "issue");
	args_coupon_user(args, &receive);
	coupon_user_add(request, &receive);
	if (key && !receive_key_valid(key, strlen(key)))
		args_fail("--key is \"%s\": allowed are 1 to %d bytes of printable ASCII", key,
			  RECEIVE_KEY_MAX);
	if (key)
		output_text(request, "key", key);
	if (args_has(args, "ack"))
		output_text(request, "ack", levels[args_choice(args, "ack", levels, 3, 0)]);
	return request_run(ctl, request);
}

static int status_run(struct ctl *ctl)
{
	cJSON *request = output_object();
	struct args_receive read;

	output_text(request, "op", "status");
	args_receive(&ctl->args, &read);
	if (read.is_given)
		output_text(request, "receive", ctl->args.argument);
	else
		coupon_user_add(request, &read.receive);
	return request_run(ctl, request);
}

const struct command issue_command = {
	.name = "issue",
	.run = issue_run,
	.options = OPTIONS(OPTION("coupon", "ID", "the coupon"), OPTION("user", "ID", "the user"),
			   OPTION("key", "KEY",
				  "idempotency key: a repeated key returns the same receive"),
			   OPTION("ack", "LEVEL",
				  "reply when the receive is accepted (default), queued or issued"),
			   SWITCH("json", "print the reply unchanged")),
	.summary = "request a coupon for a user",
	.detail = "Needs --coupon and --user. Sends the request to the gateway at\n"
		  "COUPON_LISTEN. The exit status is 0 only if the answer's code is 0.",
};

const struct command status_command = {
	.name = "status",
	.run = status_run,
	.argument = "[RECEIVE]",
	.options = OPTIONS(
		OPTION("coupon", "ID",
		       "instead of RECEIVE, with --user: all receives of a user of this coupon"),
		OPTION("user", "ID", "the user"), SWITCH("json", "print the reply unchanged")),
	.summary = "print the status of a receive, or of a user's receives",
	.detail = "Sends the request to the gateway at COUPON_LISTEN. The exit status is 0 only\n"
		  "if the answer's code is 0.",
};
