/*
 * A request's text: it yields a request or exactly one reply. A refusal is strict JSON, has the
 * code bad_request and names the member; a request that is encoded again yields the same request;
 * each answer to it is strict JSON with its user.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/listen/request.h"

#include <stdio.h>
#include <stdlib.h>

#define REPLY_MAX 2048

static struct {
	struct responder responder; /* first */
	int replies;
	enum answer answer;
	size_t len;
	char line[REPLY_MAX];
} client;

static struct json_arena *arena;

static void client_reply(struct responder *responder, const struct request *request,
			 enum answer answer, const char *line, size_t len)
{
	(void)request;
	check(responder == &client.responder && len < REPLY_MAX);
	client.replies++;
	client.answer = answer;
	client.len = len;
	memcpy(client.line, line, len);
}

static int names_a_member(const char *message)
{
	static const char *const names[] = {
		"the request", "id",       "op",      "coupon",  "user",     "key",   "ack",
		"receive",     "status",   "limit",   "usable",  "cursor",   "code",  "token",
		"trace",       "receives", "order",   "amount",  "currency", "ttl_s", "reason",
		"hold",        "use",      "release", "rollback"
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t len = strlen(names[i]);

		if (strncmp(message, names[i], len) == 0 &&
		    (strncmp(message + len, ": ", 2) == 0 ||
		     strncmp(message + len, " is ", 4) == 0))
			return 1;
	}
	/* any other member */
	return strstr(message, ": no such member of ") || strstr(message, ": byte ");
}

static void refusal_check(void)
{
	const char *error;
	const cJSON *root = json_parse(arena, client.line, client.len, &error), *message;
	int64_t code;

	check(root != NULL && client.answer == ANSWER_BAD_REQUEST);
	check(json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, 99, &code) == 0 &&
	      code == answer_code(ANSWER_BAD_REQUEST));
	message = cJSON_GetObjectItemCaseSensitive(root, "message");
	check(cJSON_IsString(message) && names_a_member(message->valuestring));
}

static void member_id(cJSON *object, const char *name, int64_t id)
{
	char text[ID_SIZE];

	id_format(id, text);
	cJSON_AddStringToObject(object, name, text);
}

static void page_add(cJSON *object, const struct request *request)
{
	char text[COUPON_CURSOR_SIZE];

	cJSON_AddStringToObject(object, "user", request->user.text);
	cJSON_AddNumberToObject(object, "limit", request->page.limit);
	if (request->page.is_next)
		cJSON_AddStringToObject(object, "cursor",
					coupon_cursor_format(&request->page.after, &request->user,
							     text));
}

static int is_use(const struct request *request)
{
	return request->op >= OP_HOLD && request->op <= OP_ROLLBACK;
}

static void amount_add(cJSON *object, const struct use *use)
{
	if (use->amount < 0)
		return;
	cJSON_AddNumberToObject(object, "amount", (double)use->amount);
	cJSON_AddStringToObject(object, "currency", use->currency);
}

static void receives_add(cJSON *object, const struct request *request)
{
	cJSON *array = cJSON_AddArrayToObject(object, "receives");
	char text[RECEIVE_SIZE];

	for (size_t i = 0; i < request->use->use.receives_n; i++) {
		receive_format(&request->use->receives[i], text);
		cJSON_AddItemToArray(array, cJSON_CreateString(text));
	}
}

static void use_add(cJSON *object, const struct request *request)
{
	const struct use *use = &request->use->use;

	cJSON_AddStringToObject(object, "order", use->order);
	if (request->op == OP_HOLD)
		cJSON_AddNumberToObject(object, "ttl_s", (double)use->ttl_s);
	if (*use->reason)
		cJSON_AddStringToObject(object, "reason", use->reason);
	amount_add(object, use);
	if (request->names_many)
		receives_add(object, request);
	else if (!request->by_receive)
		member_id(object, "coupon", request->coupon);
	if (request->user.len > 0)
		cJSON_AddStringToObject(object, "user", request->user.text);
}

/* The text of a request (malloc). */
static char *request_text(const struct request *request, int with_op)
{
	static const char *const ops[] = {
		[OP_ISSUE] = "issue",       [OP_STATUS] = "status", [OP_COUPON] = "coupon",
		[OP_COUPONS] = "coupons",   [OP_PING] = "ping",     [OP_STATS] = "stats",
		[OP_HOLD] = "hold",         [OP_USE] = "use",       [OP_RELEASE] = "release",
		[OP_ROLLBACK] = "rollback", [OP_QUOTE] = "quote"
	};
	cJSON *object = cJSON_CreateObject();
	char receive[RECEIVE_SIZE], *text;

	if (request->id_len)
		cJSON_AddRawToObject(object, "id", request->text);
	if (with_op)
		cJSON_AddStringToObject(object, "op", ops[request->op]);
	if (request->by_receive) {
		receive_format(&request->receive, receive);
		cJSON_AddStringToObject(object, "receive", receive);
	} else if (request->op == OP_ISSUE || request->op == OP_COUPON ||
		   request->op == OP_STATUS || request->op == OP_QUOTE) {
		member_id(object, "coupon", request->coupon);
		if (request->op != OP_COUPON && request->op != OP_QUOTE)
			cJSON_AddStringToObject(object, "user", request->user.text);
	}
	if (request->op == OP_COUPONS)
		page_add(object, request);
	if (request->op == OP_QUOTE)
		amount_add(object, &request->use->use);
	if (is_use(request))
		use_add(object, request);
	if (request->key_len)
		cJSON_AddStringToObject(object, "key", request_key(request));
	if (request->op == OP_CLAIM) {
		cJSON_AddStringToObject(object, "user", request->user.text);
		cJSON_AddStringToObject(object, "code", request_code(request));
	}
	if (request->op == OP_ISSUE || request->op == OP_CLAIM)
		cJSON_AddStringToObject(object, "ack", request_ack_names[request->ack]);
	text = cJSON_PrintUnformatted(object);
	cJSON_Delete(object);
	check(text != NULL);
	return text;
}

/* Receives that a request names, and what it says of them. */
static void use_check(const struct request_use *use, const struct request_use *again)
{
	check(use_receives_valid(use->receives, use->use.receives_n));
	check(again->use.receives_n == use->use.receives_n);
	check(memcmp(&again->use, &use->use, sizeof(use->use)) == 0);
	for (size_t i = 0; i < use->use.receives_n; i++) {
		const struct receive *a = &use->receives[i], *b = &again->receives[i];

		check(a->coupon == b->coupon && a->index == b->index &&
		      user_id_same(&a->user, &b->user) &&
		      memcmp(&a->batch, &b->batch, sizeof(a->batch)) == 0);
	}
}

static void request_check(const struct request *request, enum request_op op)
{
	char *text = request_text(request, op == OP_COUNT);
	struct request *again = request_parse(arena, text, strlen(text), op, &client.responder);
	int named = request->op == OP_ISSUE || request->op == OP_STATUS || request->op == OP_COUPON;

	check(again != NULL);
	check(again->op == request->op && again->ack == request->ack &&
	      again->by_receive == request->by_receive);
	check(!named || (again->coupon == request->coupon && request->coupon > 0));
	check(!named || request->op == OP_COUPON ||
	      (user_id_same(&again->user, &request->user) && request->user.len > 0));
	check(!request->by_receive ||
	      memcmp(&again->receive.batch, &request->receive.batch, sizeof(struct ulid)) == 0);
	check(!request->by_receive || again->receive.index == request->receive.index);
	check(again->page.limit == request->page.limit && request->page.limit >= 1 &&
	      request->page.limit <= REQUEST_PAGE_MAX);
	check(again->page.is_next == request->page.is_next);
	check((request->op != OP_COUPONS && request->op != OP_CLAIM) ||
	      user_id_same(&again->user, &request->user));
	check(again->id_len == request->id_len && again->key_len == request->key_len);
	check(memcmp(again->text, request->text, request->id_len + request->key_len + 2) == 0);
	check(again->code_len == request->code_len &&
	      strcmp(request_code(again), request_code(request)) == 0);
	check((request->op == OP_CLAIM) == (request->code_len > 0) &&
	      request->code_len <= REQUEST_CODE_MAX);
	check(request->key_len == 0 || receive_key_valid(request_key(request), request->key_len));
	check(request->id_len < REQUEST_ID_SIZE);
	check((request->use != NULL) == (is_use(request) || request->op == OP_QUOTE));
	if (is_use(request))
		use_check(request->use, again->use);
	free(again);
	cJSON_free(text);
}

static void answer_text_check(const char *name, const char *wanted)
{
	const char *error;
	const cJSON *root = json_parse(arena, client.line, client.len, &error), *item;

	check(root != NULL);
	item = cJSON_GetObjectItemCaseSensitive(root, name);
	check(cJSON_IsString(item) && strcmp(item->valuestring, wanted) == 0);
}

/* Frees the request. */
static void answers_check(struct request *request, enum request_op op)
{
	struct result result = { .answer = ANSWER_OK,
				 .slot = RECEIVE_SLOT_MAX,
				 .receive = { request->coupon, request->user, { { 0xff } }, 255 } };
	char *text = request_text(request, op == OP_COUNT), receive[RECEIVE_SIZE], message[256];
	struct request *again = request_parse(arena, text, strlen(text), op, &client.responder);

	receive_format(&result.receive, receive);
	request_answer(request, &result);
	check(client.replies == 1 && client.answer == ANSWER_OK);
	answer_text_check("receive", receive);
	snprintf(message, sizeof(message), "user %s has as many of coupon %lld as allowed",
		 again->user.text, (long long)again->coupon);
	result = (struct result){ .answer = ANSWER_LIMIT_REACHED };
	request_answer(again, &result);
	answer_text_check("message", message);
	cJSON_free(text);
}

/* The first byte chooses the operation that a path would name; the rest is the text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum request_op op = size && data[0] % 16 < OP_COUNT ? (enum request_op)(data[0] % 16)
							     : OP_COUNT;
	struct request *request;

	if (size == 0)
		return 0;
	if (!arena)
		arena = json_arena_new();
	client.responder.reply = client_reply;
	client.replies = 0;
	request = request_parse(arena, (const char *)data + 1, size - 1, op, &client.responder);
	check(client.replies == (request ? 0 : 1));
	if (!request) {
		refusal_check();
		return 0;
	}
	request_check(request, op);
	if (request->op == OP_ISSUE)
		answers_check(request, op);
	else
		free(request);
	return 0;
}
