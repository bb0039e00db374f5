/*
 * couponctl issue and status: one request over the gateway's socket API. void takes issued receives
 * back: PostgreSQL decides; then Redis gives back what comes back, and remembers that the receive
 * is voided, should PostgreSQL be put back to before it. What Redis does not get now it gets from
 * the keeper; it gets what is kept when void is run again.
 */
#include "client/client.h"
#include "common/check.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/answer.h"
#include "common/message/json.h"
#include "common/message/receive.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES_MAX 500

static int is_amount(const char *name)
{
	static const char *const amounts[] = { "amount", "amount_off", "cap", "threshold" };

	for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++)
		if (strcmp(name, amounts[i]) == 0)
			return 1;
	return 0;
}

/* What the gateway has answered, for people: with amounts as they are written. */
static void reply_print(const cJSON *reply, int depth)
{
	const char *currency = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(reply, "currency"));
	char money[MONEY_SIZE];

	for (const cJSON *item = reply->child; item; item = item->next) {
		const char *name = item->string ? item->string : "-";

		if (cJSON_IsString(item) || cJSON_IsBool(item))
			printf("%*s%-10s %s\n", depth, "", name,
			       cJSON_IsString(item) ? item->valuestring
			       : cJSON_IsTrue(item) ? "true"
						    : "false");
		else if (cJSON_IsNumber(item) && currency && is_amount(name))
			printf("%*s%-10s %s\n", depth, "", name,
			       money_text((int64_t)item->valuedouble, currency, money));
		else if (cJSON_IsNumber(item))
			printf("%*s%-10s %.0f\n", depth, "", name, item->valuedouble);
		else if (cJSON_IsArray(item) || cJSON_IsObject(item)) {
			printf("%*s%s\n", depth, "", name);
			reply_print(item, depth + 2);
		}
	}
}

/* Empty: the reply does not have it. */
static const char *text_of(const cJSON *reply, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(reply, name));

	return text ? text : "";
}

/* The request was not decided, or it is not known how: says why. Returns the exit status. */
static int undecided_say(const cJSON *reply, int64_t code)
{
	const char *status = text_of(reply, "status"), *message = text_of(reply, "message");

	if (code == answer_code(ANSWER_BAD_REQUEST))
		args_fail("%s", message);
	if (code == answer_code(ANSWER_KEY_REUSED)) {
		fprintf(stderr, "couponctl: %s\n", message);
		return CTL_KEY_REUSED;
	}
	fprintf(stderr, "couponctl: %s: %s%s\n", status, message,
		code == answer_code(ANSWER_UNAUTHORIZED)
			? ": the gateway needs an API key or a token in COUPON_GATEWAY_KEY"
		: code == answer_code(ANSWER_FORBIDDEN)
			? ": COUPON_GATEWAY_KEY has no right to do this"
			: "");
	if (code == answer_code(ANSWER_UNKNOWN))
		return CTL_UNKNOWN;
	return code < answer_code(ANSWER_BAD_REQUEST) ? CTL_AWAY : CTL_FAILED;
}

int gateway_request_run(struct ctl *ctl, cJSON *request, int unanswered)
{
	char *text = checked(json_write(request)), *reply;
	struct json_arena *arena = json_arena_new();
	const char *error;
	const cJSON *root;
	int64_t code;
	int status;

	reply = gateway_exchange(&ctl->config, text, CTL_AWAY, unanswered);
	root = json_parse(arena, reply, strlen(reply), &error);
	if (!root ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, INT32_MAX, &code))
		log_fatal("the gateway's reply has no code: %s", reply);
	if (args_has(&ctl->args, "json"))
		puts(reply);
	else if (code < answer_code(ANSWER_BUSY))
		reply_print(root, 0);
	status = code == answer_code(ANSWER_OK) ? CTL_DONE : CTL_FAILED;
	if (code >= answer_code(ANSWER_BUSY))
		status = undecided_say(root, code);
	free(reply);
	json_arena_free(arena);
	cJSON_free(text);
	cJSON_Delete(request);
	return status;
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
	return gateway_request_run(ctl, request, CTL_UNKNOWN);
}

static int status_run(struct ctl *ctl)
{
	cJSON *request = output_object();
	struct receive receive;

	output_text(request, "op", "status");
	args_receive(&ctl->args, &receive);
	if (ctl->args.argument)
		output_text(request, "receive", ctl->args.argument);
	else
		coupon_user_add(request, &receive);
	return gateway_request_run(ctl, request, CTL_AWAY); /* asked again, it changes nothing */
}

const struct command issue_command = {
	.name = "issue",
	.run = issue_run,
	.options =
		OPTIONS(OPTION("coupon", "ID", "the coupon"), OPTION("user", "ID", "the user"),
			OPTION("key", "KEY",
			       "idempotency key: a repeated key returns the same receive"),
			OPTION("ack", "LEVEL",
			       "reply when the receive is accepted (default), queued or issued")),
	.summary = "request a coupon for a user",
	.detail = "Needs --coupon and --user. Sends the request to the gateway at\n"
		  "COUPON_LISTEN; --json prints its reply unchanged.",
};

const struct command status_command = {
	.name = "status",
	.run = status_run,
	.argument = "[RECEIVE]",
	.options = RECEIVE_OPTIONS,
	.summary = "print the status of a receive, or of a user's receives",
	.detail = "Sends the request to the gateway at COUPON_LISTEN; --json prints its reply\n"
		  "unchanged.",
};

struct voiding {
	struct ctl *ctl;
	struct db *db;
	struct redis_client *redis;
	char run_id[REDIS_RUN_ID_SIZE]; /* "" if it is not known */
	int not_voided_n, not_told_n;
};

enum told { TOLD_NOT, TOLD, TOLD_GONE };

/*
 * `row` is what PostgreSQL says. TOLD_GONE: Redis does not have the coupon any more, and nobody
 * will ask it.
 */
static enum told redis_void(struct voiding *voiding, const struct receive *receive,
			    const PGresult *row)
{
	char batch[ULID_SIZE], index[NUMBER_SIZE];
	const char *argv[] = { receive->user.text, column_text(row, 0, "slot"),
			       ulid_format(&receive->batch, batch),
			       number_text(receive->index, index),
			       db_is_true(row, 0, "is_returned") ? "void" : "keep" };
	struct redis_coupon coupon;
	redisReply *reply;
	int told;

	/* First: it must be noticed if PostgreSQL is put back to before the void. */
	if (behind_copy(voiding->db, voiding->redis))
		return TOLD_NOT;
	reply = redis_client_coupon_eval(voiding->redis, lua_slot_free, receive->coupon,
					 COUPON_KEYS_SLOT_FREE, 5, argv);
	told = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
	       strcmp(reply->element[3]->str, "malformed") != 0;
	freeReplyObject(reply);
	if (told)
		return TOLD;
	return redis_coupon_read(voiding->redis, receive->coupon, &coupon) == 0 ? TOLD_GONE
										: TOLD_NOT;
}

/* The keeper need not free it. */
static void freed_mark(struct voiding *voiding, const struct receive *receive)
{
	char coupons[NUMBER_SIZE], batches[ULID_UUID_SIZE + 2], indexes[NUMBER_SIZE];
	char batch[ULID_UUID_SIZE];

	snprintf(coupons, sizeof(coupons), "{%lld}", (long long)receive->coupon);
	snprintf(batches, sizeof(batches), "{%s}", ulid_to_uuid(&receive->batch, batch));
	snprintf(indexes, sizeof(indexes), "{%d}", receive->index);
	db_do(voiding->db, sql_query_slot_free_done, postgres_text(coupons), postgres_text(batches),
	      postgres_text(indexes), postgres_text(voiding->run_id));
}

static void receive_void(struct voiding *voiding, const struct receive *receive)
{
	cJSON *object = output_object();
	enum told told = TOLD_NOT;
	char text[RECEIVE_SIZE], batch[ULID_UUID_SIZE];
	PGresult *row = db_ask(voiding->db, sql_query_coupon_void, postgres_number(receive->coupon),
			       postgres_text(ulid_to_uuid(&receive->batch, batch)),
			       postgres_number(receive->index), postgres_text(receive->user.text),
			       postgres_text(args_text(&voiding->ctl->args, "why")));
	const char *result = column_text(row, 0, "result");
	int is_again = strcmp(result, "again") == 0,
	    is_voided = is_again || strcmp(result, "voided") == 0,
	    is_returned = db_is_true(row, 0, "is_returned");

	fault_point(FAULT_VOID_BEFORE_REDIS);
	if (is_voided)
		told = redis_void(voiding, receive, row);
	fault_point(FAULT_VOID_BEFORE_MARK);
	if (told == TOLD && is_returned)
		freed_mark(voiding, receive);
	if (is_voided)
		log_fatal_status(CTL_UNKNOWN);
	voiding->not_voided_n += !is_voided;
	voiding->not_told_n += is_voided && told == TOLD_NOT;
	receive_format(receive, text);
	output_text(object, "receive", text);
	output_text(object, "result", result);
	output_bool(object, "voided", is_voided);
	output_bool(object, "returned", is_voided && is_returned);
	output_bool(object, "in_redis", told == TOLD);
	output_say(
		object,
		is_again    ? "{receive} is voided already: its stock and its slot "
			      "[returned come back][!returned stay taken]\n"
		: is_voided ? "{receive} is voided: its stock and its slot "
			      "[returned come back][!returned stay taken]\n"
		: strcmp(result, "rejected") == 0
			? "{receive} was rejected: there is nothing to void\n"
		: strcmp(result, "late") == 0
			? "{receive} is not issued in Redis yet, try again: nothing was changed\n"
			: "{receive} is not issued: nothing was changed\n",
		args_has(&voiding->ctl->args, "json"));
	PQclear(row);
}

/* Every issued receive of the user. */
static void user_void(struct voiding *voiding, struct receive *receive)
{
	PGresult *rows = db_ask(voiding->db, sql_query_void_receives,
				postgres_number(receive->coupon),
				postgres_text(receive->user.text));

	if (PQntuples(rows) == 0)
		log_fatal_as(CTL_ABSENT, "user %s has no issued receive of coupon %lld",
			     receive->user.text, (long long)receive->coupon);
	for (int row = 0; row < PQntuples(rows); row++) {
		ulid_from_uuid(&receive->batch, column_text(rows, row, "batch"));
		receive->index = (int)column_number(rows, row, "idx");
		receive_void(voiding, receive);
	}
	PQclear(rows);
}

static int void_run(struct ctl *ctl)
{
	struct voiding voiding = { .ctl = ctl };
	struct receive receive;
	int64_t uptime_s;

	args_bytes(&ctl->args, "why", WHY_BYTES_MAX);
	args_receive(&ctl->args, &receive);
	voiding.db = store_changing_open(ctl, &voiding.redis);
	store_key_bind(voiding.db, ctl, NULL);
	redis_client_process(voiding.redis, voiding.run_id, &uptime_s);
	if (ctl->args.argument)
		receive_void(&voiding, &receive);
	else
		user_void(&voiding, &receive);
	redis_client_free(voiding.redis);
	db_close(voiding.db);
	if (voiding.not_told_n > 0)
		fprintf(stderr, "couponctl: warning: recorded, but Redis could not be updated: a "
				"keeper will update it, or run this command again\n");
	if (voiding.not_voided_n > 0)
		return CTL_REFUSED;
	return voiding.not_told_n > 0 ? CTL_NOT_IN_REDIS : CTL_DONE;
}

const struct command void_command = {
	.name = "void",
	.run = void_run,
	.argument = "[RECEIVE]",
	.options = OPTIONS(OPTION("coupon", "ID", "with --user: of this coupon"),
			   OPTION("user", "USER", "every issued receive of this user"),
			   OPTION("why", "TEXT", "for the record, 1 to 500 bytes"),
			   KEY_OPTION_AGAIN, BY_OPTION),
	.summary = "take an issued receive back",
	.detail =
		"Takes a RECEIVE, or --coupon and --user. The terms of the campaign say whether\n"
		"its piece of the stock and its user's slot come back (couponctl create or edit\n"
		"--void-returns). Voiding again changes nothing. Its status is rejected from then\n"
		"on, with the reason voided. A receive that is not issued is refused.",
};
