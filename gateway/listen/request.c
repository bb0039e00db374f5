#include "gateway/listen/request.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/trace_context.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void responder_line(struct responder *responder, const struct request *request, enum answer answer,
		    char *line)
{
	responder->reply(responder, request, answer, line, strlen(line));
	cJSON_free(line);
}

#define MESSAGE_SIZE 256
#define ABANDONED_MS 1000
#define VALUE_SHOWN 80 /* bytes of a wrong value that its error repeats */

const struct request_operation request_operations[] = {
#define OP(name, text, reads, cost) [name] = { text, reads, cost },
#include "gateway/listen/op_table.h"
#undef OP
};

const char *const request_ack_names[] = { "accepted", "queued", "issued" };

/* The members of a request's object, before the request is made. */
struct parse {
	char id[REQUEST_ID_SIZE]; /* as JSON */
	const char *key;
	char trace[TRACE_SIZE];
	const char *code;
	const cJSON *cursor;    /* checked when the user is known; NULL: none */
	char why[MESSAGE_SIZE]; /* what is wrong with a member */
	struct request request; /* last: its text is not here */
};

const char *request_key(const struct request *request)
{
	return request->text + request->id_len + 1;
}

const char *request_trace(const struct request *request)
{
	return request_key(request) + request->key_len + 1;
}

const char *request_code(const struct request *request)
{
	return request_trace(request) + request->trace_len + 1;
}

void request_code_wipe(struct request *request)
{
	OPENSSL_cleanse((char *)(uintptr_t)request_code(request), request->code_len);
}

void request_code_set(struct request *request, const char *code)
{
	request->code_len = strlen(code);
	check(request->code_len <= RECEIVE_CODE_MAX);
	memcpy((char *)(uintptr_t)request_code(request), code, request->code_len + 1);
}

enum request_op request_op_find(const char *name)
{
	for (int op = 0; op < OP_COUNT; op++)
		if (strcmp(request_operations[op].name, name) == 0)
			return (enum request_op)op;
	return OP_COUNT;
}

/* How many bytes of a wrong text an error repeats: whole UTF-8 characters only. */
static size_t shown_length(const char *text)
{
	size_t n = strlen(text);

	if (n > VALUE_SHOWN)
		for (n = VALUE_SHOWN; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
			;
	return n;
}

/* Always -1. */
static int message_send(struct parse *parse, const char *message)
{
	responder_line(parse->request.responder, NULL, ANSWER_BAD_REQUEST,
		       answer_message_line(parse->id, ANSWER_BAD_REQUEST, message));
	return -1;
}

/* Sends bad_request: the member, its value and what is allowed, and returns -1. NULL: 0. */
static int parse_fail(struct parse *parse, const char *member, const cJSON *value,
		      const char *allowed)
{
	char message[MESSAGE_SIZE], *text;

	if (!allowed)
		return 0;
	text = value ? cJSON_PrintUnformatted(value) : NULL;
	if (text)
		snprintf(message, sizeof(message), "%s is %.*s: %s", member,
			 (int)shown_length(text), text, allowed);
	else
		snprintf(message, sizeof(message), "%s: %s", member, allowed);
	cJSON_free(text);
	return message_send(parse, message);
}

/* The members: each takes one, and returns NULL or what is allowed. */

static const char *id_member(struct parse *parse, const cJSON *item)
{
	int64_t number;

	if (cJSON_IsString(item) && strlen(item->valuestring) <= REQUEST_ID_STRING_MAX) {
		if (cJSON_PrintPreallocated((cJSON *)(uintptr_t)item, parse->id, sizeof(parse->id),
					    0))
			return NULL;
		parse->id[0] = '\0';
	}
	if (json_integer(item, -JSON_INTEGER_MAX, JSON_INTEGER_MAX, &number))
		return "must be an integer from -(2^53-1) to 2^53-1 or a string of at most 64 "
		       "bytes";
	snprintf(parse->id, sizeof(parse->id), "%lld", (long long)number);
	return NULL;
}

static const char *coupon_member(struct parse *parse, const cJSON *item)
{
	const char *error;

	return json_id(item, &parse->request.coupon, &error) ? error : NULL;
}

static const char *user_member(struct parse *parse, const cJSON *item)
{
	int64_t number;

	if (cJSON_IsString(item)) {
		const char *text = item->valuestring;

		if (user_id_parse(&parse->request.user, text, strlen(text)) == 0)
			return NULL;
		user_id_why(text, strlen(text), parse->why);
		return parse->why;
	}
	if (json_integer(item, 0, JSON_INTEGER_MAX, &number))
		return cJSON_IsNumber(item) && item->valuedouble > 0
			       ? "is beyond 2^53-1 as a number: send it as a string"
			       : "must be a string of " USER_ID_ALLOWED
				 ", or an integer from 0 to 2^53-1";
	parse->request.user = user_id_of_number(number);
	return NULL;
}

static const char *op_member(struct parse *parse, const cJSON *item)
{
	if (parse->request.op != OP_COUNT)
		return "is not a member here: the path names the operation";
	if (cJSON_IsString(item))
		parse->request.op = request_op_find(item->valuestring);
	if (parse->request.op != OP_COUNT)
		return NULL;
	strcpy(parse->why, "must be one of ");
	for (int op = 0; op < OP_COUNT; op++) {
		strcat(parse->why, op > 0 ? ", " : "");
		strcat(parse->why, request_operations[op].name);
	}
	return parse->why;
}

static const char *key_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !receive_key_valid(item->valuestring, strlen(item->valuestring)))
		return "must be a string of 1 to 64 printable ASCII bytes";
	parse->key = item->valuestring;
	return NULL;
}

/* Where the caller's tracing does not record the request, nothing is handed on. */
static const char *trace_member(struct parse *parse, const cJSON *item)
{
	struct trace_context context;

	if (!cJSON_IsString(item) ||
	    trace_context_parse(item->valuestring, strlen(item->valuestring), &context))
		return "must be a traceparent of W3C Trace Context, as 00-<32 digits>-<16 "
		       "digits>-01";
	*parse->trace = '\0';
	if (context.is_sampled)
		trace_context_format(&context, parse->request.responder->name, parse->trace);
	return NULL;
}

/* Its form is checked later: whatever is no code gets one answer. */
static const char *code_member(struct parse *parse, const cJSON *item)
{
	size_t len = cJSON_IsString(item) ? strlen(item->valuestring) : 0;

	if (len == 0 || len > REQUEST_CODE_MAX)
		return "must be a string of 1 to 128 bytes";
	parse->code = item->valuestring;
	return NULL;
}

/* Its value is never repeated: it is a secret. */
static const char *token_member(struct parse *parse, const cJSON *item)
{
	size_t len = cJSON_IsString(item) ? strlen(item->valuestring) : 0;

	if (len == 0 || len > TOKEN_BYTES_MAX)
		return "must be a key or a token, a string of 1 to 4096 bytes";
	parse->code = item->valuestring;
	return NULL;
}

static const char *ack_member(struct parse *parse, const cJSON *item)
{
	for (int ack = 0; cJSON_IsString(item) && ack <= ACK_ISSUED; ack++) {
		if (strcmp(item->valuestring, request_ack_names[ack]) == 0) {
			parse->request.ack = (enum request_ack)ack;
			return NULL;
		}
	}
	return "must be accepted, queued or issued";
}

#define RECEIVE_ALLOWED "must be a receive as an answer named it, <coupon>.<user>.<batch>.<index>"

static const char *receive_member(struct parse *parse, const cJSON *item)
{
	const char *text = cJSON_IsString(item) ? item->valuestring : "";
	size_t valid = user_id_valid_length(text, strlen(text));

	if (text[valid]) {
		snprintf(parse->why, sizeof(parse->why),
			 "byte %zu is not allowed: " RECEIVE_ALLOWED, valid + 1);
		return parse->why;
	}
	if (receive_parse(&parse->request.receive, text, valid))
		return RECEIVE_ALLOWED;
	parse->request.by_receive = 1;
	parse->request.coupon = parse->request.receive.coupon;
	parse->request.user = parse->request.receive.user;
	return NULL;
}

/* A text, too: a query over HTTP has only texts. */
static const char *limit_member(struct parse *parse, const cJSON *item)
{
	int64_t limit;
	int rc = cJSON_IsString(item)
			 ? id_parse(item->valuestring, strlen(item->valuestring), &limit)
			 : json_integer(item, 1, REQUEST_PAGE_MAX, &limit);

	if (rc || limit > REQUEST_PAGE_MAX)
		return "must be an integer from 1 to 100";
	parse->request.page.limit = (int)limit;
	return NULL;
}

/* It belongs to the user, who may be named after it: checked at the end. */
static const char *cursor_member(struct parse *parse, const cJSON *item)
{
	parse->cursor = item;
	return NULL;
}

static int unknown_member(struct parse *parse, const cJSON *item)
{
	char message[MESSAGE_SIZE];

	snprintf(message, sizeof(message), "%.*s: no such member of %s",
		 (int)shown_length(item->string), item->string,
		 request_operations[parse->request.op].name);
	return message_send(parse, message);
}

#define OF(op) (1u << (op))

enum member { MEMBER_COUPON, MEMBER_CODE, MEMBER_USER, MEMBER_RECEIVE, MEMBER_KEY };

/* The members beside id and op, those that are missed first in front. */
static const struct {
	const char *name;
	const char *(*take)(struct parse *parse, const cJSON *item);
	unsigned ops;      /* that take it */
	unsigned required; /* by these */
} members[] = {
	[MEMBER_COUPON] = { "coupon", coupon_member, OF(OP_ISSUE) | OF(OP_STATUS) | OF(OP_COUPON),
			    OF(OP_ISSUE) | OF(OP_COUPON) },
	[MEMBER_CODE] = { "code", code_member, OF(OP_REDEEM), OF(OP_REDEEM) },
	[MEMBER_USER] = { "user", user_member,
			  OF(OP_ISSUE) | OF(OP_REDEEM) | OF(OP_STATUS) | OF(OP_COUPONS),
			  OF(OP_ISSUE) | OF(OP_REDEEM) | OF(OP_COUPONS) },
	[MEMBER_RECEIVE] = { "receive", receive_member, OF(OP_STATUS), 0 },
	[MEMBER_KEY] = { "key", key_member, OF(OP_ISSUE) | OF(OP_REDEEM), 0 },
	{ "trace", trace_member, OF(OP_ISSUE) | OF(OP_REDEEM), 0 },
	{ "ack", ack_member, OF(OP_ISSUE) | OF(OP_REDEEM), 0 },
	{ "limit", limit_member, OF(OP_COUPONS), 0 },
	{ "cursor", cursor_member, OF(OP_COUPONS), 0 },
	{ "token", token_member, OF(OP_AUTH), OF(OP_AUTH) },
};

#define MEMBERS_N (sizeof(members) / sizeof(members[0]))

/* Notes the member in the bits of `*seen`. */
static int member_take(struct parse *parse, const cJSON *item, unsigned *seen)
{
	for (size_t i = 0; i < MEMBERS_N; i++) {
		if (strcmp(members[i].name, item->string) != 0)
			continue;
		if (!(members[i].ops & OF(parse->request.op)))
			break;
		*seen |= 1u << i;
		return parse_fail(parse, members[i].name,
				  members[i].take == token_member ? NULL : item,
				  members[i].take(parse, item));
	}
	return unknown_member(parse, item);
}

static int members_required(struct parse *parse, unsigned seen)
{
	if (parse->request.op == OP_STATUS && seen != 1u << MEMBER_RECEIVE &&
	    seen != (1u << MEMBER_COUPON | 1u << MEMBER_USER))
		return parse_fail(parse, "status", NULL,
				  "takes either receive, or coupon and user");
	for (size_t i = 0; i < MEMBERS_N; i++)
		if (members[i].required & OF(parse->request.op) && !(seen & 1u << i))
			return parse_fail(parse, members[i].name, NULL, "is missing");
	return 0;
}

static int cursor_check(struct parse *parse)
{
	const cJSON *item = parse->cursor;

	if (!item)
		return 0;
	if (!cJSON_IsString(item) ||
	    coupon_cursor_parse(&parse->request.page.after, &parse->request.user, item->valuestring,
				strlen(item->valuestring)))
		return parse_fail(parse, "cursor", item,
				  "must be the cursor of a reply to coupons of the same user");
	parse->request.page.is_next = 1;
	return 0;
}

/* The user of a token need not be named again. */
static void user_apply(struct parse *parse, unsigned *seen)
{
	const struct token *token = parse->request.responder->identity.token;

	if (!token || !(members[MEMBER_USER].ops & OF(parse->request.op)) ||
	    *seen & (1u << MEMBER_USER | 1u << MEMBER_RECEIVE))
		return;
	parse->request.user = token->user;
	*seen |= 1u << MEMBER_USER;
}

/*
 * A key that the request has beside its object. Two that differ are a fault of the client: it does
 * not know which one it repeats.
 */
static int key_check(struct parse *parse, const cJSON *root, const char *key, const char *wrong)
{
	if (!key || !*key || !(members[MEMBER_KEY].ops & OF(parse->request.op)))
		return 0;
	if (parse->key && strcmp(parse->key, key) != 0)
		return parse_fail(parse, "key", cJSON_GetObjectItemCaseSensitive(root, "key"),
				  wrong);
	parse->key = key;
	return 0;
}

static int object_parse(struct parse *parse, const cJSON *root)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "id");
	const struct responder *responder = parse->request.responder;
	unsigned seen = 0;

	if (item && parse_fail(parse, "id", item, id_member(parse, item)))
		return -1;
	item = cJSON_GetObjectItemCaseSensitive(root, "op");
	if (item && parse_fail(parse, "op", item, op_member(parse, item)))
		return -1;
	if (parse->request.op == OP_COUNT)
		return parse_fail(parse, "op", NULL, "is missing");
	cJSON_ArrayForEach(item, root)
	{
		if (strcmp(item->string, "id") == 0 || strcmp(item->string, "op") == 0)
			continue;
		if (member_take(parse, item, &seen))
			return -1;
	}
	user_apply(parse, &seen);
	if (members_required(parse, seen) ||
	    key_check(parse, root, responder->key, "is not that of Idempotency-Key") ||
	    (responder->identity.token &&
	     key_check(parse, root, responder->identity.token->key, "is not that of the token")))
		return -1;
	return cursor_check(parse);
}

/* The text is not JSON. Names the member, where it is one string that is wrong. */
static void json_fail(struct parse *parse, const struct json_fault *fault, const char *error)
{
	char member[VALUE_SHOWN + 1], why[MESSAGE_SIZE - VALUE_SHOWN - sizeof(": ")];

	if (!fault->member || fault->member_len > VALUE_SHOWN) {
		parse_fail(parse, "the request", NULL, error);
		return;
	}
	memcpy(member, fault->member, fault->member_len);
	member[fault->member_len] = '\0';
	if (strcmp(member, "user") == 0)
		error = "must be " USER_ID_ALLOWED;
	snprintf(why, sizeof(why), "byte %zu is not allowed: %s", fault->byte, error);
	parse_fail(parse, member, NULL, why);
}

static struct request *request_new(const struct parse *parse)
{
	size_t id_len = strlen(parse->id), key_len = parse->key ? strlen(parse->key) : 0,
	       trace_len = strlen(parse->trace), code_len = parse->code ? strlen(parse->code) : 0;
	/* One that is redeemed gets room for the reference of its code. */
	size_t code_room = code_len > RECEIVE_CODE_MAX || !parse->code ? code_len
								       : RECEIVE_CODE_MAX;
	struct request *request = checked(
		malloc(sizeof(*request) + id_len + key_len + trace_len + code_room + 4));
	char *at = request->text;

	*request = parse->request;
	request->begun_us = clock_monotonic_us();
	request->id_len = id_len;
	request->key_len = key_len;
	request->trace_len = trace_len;
	request->code_len = code_len;
	at = mempcpy(at, parse->id, id_len + 1);
	at = mempcpy(at, parse->key ? parse->key : "", key_len + 1);
	at = mempcpy(at, parse->trace, trace_len + 1);
	memcpy(at, parse->code ? parse->code : "", code_len + 1);
	return request;
}

struct request *request_parse(struct json_arena *arena, const char *text, size_t len,
			      enum request_op op, struct responder *responder)
{
	struct parse parse;
	const char *error;
	const cJSON *root = json_parse(arena, text, len, &error);

	parse.id[0] = '\0';
	parse.trace[0] = '\0';
	if (responder->trace)
		strcpy(parse.trace, responder->trace);
	parse.key = parse.code = NULL;
	parse.cursor = NULL;
	parse.request = (struct request){ .responder = responder,
					  .op = op,
					  .page.limit = REQUEST_PAGE_DEFAULT };
	if (!root) {
		json_fail(&parse, json_fault(arena), error);
		return NULL;
	}
	if (!cJSON_IsObject(root)) {
		parse_fail(&parse, "the request", NULL, "must be a JSON object");
		return NULL;
	}
	return object_parse(&parse, root) ? NULL : request_new(&parse);
}

int request_is_abandoned(const struct request *request, int64_t now_us)
{
	const struct responder *responder = request->responder;

	return responder->has_left &&
	       responder->left_waited_ms + (now_us - request->begun_us) / 1000 >= ABANDONED_MS;
}

int request_is_http(const char *line, size_t len)
{
	static const char *const begins[] = { "GET ",     "HEAD ",    "POST ",  "PUT ",
					      "DELETE ",  "OPTIONS ", "PATCH ", "TRACE ",
					      "CONNECT ", "PRI ",     "Host:" };

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (len >= strlen(begins[i]) &&
		    strncasecmp(line, begins[i], strlen(begins[i])) == 0)
			return 1;
	return 0;
}
