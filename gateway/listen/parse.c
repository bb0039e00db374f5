#include "gateway/listen/parse.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/json.h"
#include "gateway/listen/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_SHOWN 80 /* bytes of a wrong value that its error repeats */

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

/* Sends bad_request: the member, its value and what is allowed, and returns -1. */
static int parse_fail(struct parse *parse, const char *member, const cJSON *value,
		      const char *allowed)
{
	char message[PARSE_WHY_SIZE], *text;

	text = value ? json_write(value) : NULL;
	if (text)
		snprintf(message, sizeof(message), "%s is %.*s: %s", member,
			 (int)shown_length(text), text, allowed);
	else
		snprintf(message, sizeof(message), "%s: %s", member, allowed);
	cJSON_free(text);
	return message_send(parse, message);
}

/* As parse_fail(), unless `allowed` is NULL: then 0. */
static int parse_check(struct parse *parse, const char *member, const cJSON *value,
		       const char *allowed)
{
	return allowed ? parse_fail(parse, member, value, allowed) : 0;
}

static int unknown_member(struct parse *parse, const cJSON *item)
{
	char message[PARSE_WHY_SIZE];

	snprintf(message, sizeof(message), "%.*s: no such member of %s",
		 (int)shown_length(item->string), item->string,
		 request_operations[parse->request.op].name);
	return message_send(parse, message);
}

#define OF(op) (1u << (op))
#define USES (OF(OP_HOLD) | OF(OP_USE) | OF(OP_RELEASE) | OF(OP_ROLLBACK))

enum member {
	MEMBER_COUPON,
	MEMBER_CODE,
	MEMBER_USER,
	MEMBER_AMOUNT,
	MEMBER_CURRENCY,
	MEMBER_ORDER,
	MEMBER_TOKEN,
	MEMBERS_REQUIRED, /* by one operation at least */
	MEMBER_RECEIVE = MEMBERS_REQUIRED,
	MEMBER_RECEIVES,
	MEMBER_KEY
};

/* The members beside id and op, those that are missed first in front. */
static const struct {
	const char *name;
	member_fn *take;
	unsigned ops;      /* that take it */
	unsigned required; /* by these */
} members[] = {
	[MEMBER_COUPON] = { "coupon", coupon_member,
			    OF(OP_ISSUE) | OF(OP_STATUS) | OF(OP_COUPON) | USES | OF(OP_QUOTE),
			    OF(OP_ISSUE) | OF(OP_COUPON) | OF(OP_QUOTE) },
	[MEMBER_CODE] = { "code", code_member, OF(OP_CLAIM), OF(OP_CLAIM) },
	[MEMBER_USER] = { "user", user_member,
			  OF(OP_ISSUE) | OF(OP_CLAIM) | OF(OP_STATUS) | OF(OP_COUPONS) | USES,
			  OF(OP_ISSUE) | OF(OP_CLAIM) | OF(OP_COUPONS) },
	[MEMBER_AMOUNT] = { "amount", amount_member, OF(OP_HOLD) | OF(OP_USE) | OF(OP_QUOTE),
			    OF(OP_QUOTE) },
	[MEMBER_CURRENCY] = { "currency", currency_member, OF(OP_HOLD) | OF(OP_USE) | OF(OP_QUOTE),
			      OF(OP_QUOTE) },
	[MEMBER_ORDER] = { "order", order_member, USES, USES },
	[MEMBER_TOKEN] = { "token", token_member, OF(OP_AUTH), OF(OP_AUTH) },
	[MEMBER_RECEIVE] = { "receive", receive_member, OF(OP_STATUS) | USES, 0 },
	[MEMBER_RECEIVES] = { "receives", receives_member, USES, 0 },
	[MEMBER_KEY] = { "key", key_member, OF(OP_ISSUE) | OF(OP_CLAIM) | USES, 0 },
	{ "by", by_member, USES, 0 },
	{ "ttl_s", ttl_member, OF(OP_HOLD), 0 },
	{ "reason", reason_member, OF(OP_ROLLBACK), 0 },
	{ "trace", trace_member, OF(OP_ISSUE) | OF(OP_CLAIM) | USES, 0 },
	{ "ack", ack_member, OF(OP_ISSUE) | OF(OP_CLAIM), 0 },
	{ "limit", limit_member, OF(OP_COUPONS), 0 },
	{ "usable", usable_member, OF(OP_COUPONS), 0 },
	{ "cursor", cursor_member, OF(OP_COUPONS), 0 },
};

#define MEMBERS_N (sizeof(members) / sizeof(members[0]))

static int has_use(const struct parse *parse)
{
	return (OF(parse->request.op) & (USES | OF(OP_QUOTE))) != 0;
}

/* Notes the member in the bits of `*seen`. */
static int member_take(struct parse *parse, const cJSON *item, unsigned *seen)
{
	for (size_t i = 0; i < MEMBERS_N; i++) {
		if (strcmp(members[i].name, item->string) != 0)
			continue;
		if (!(members[i].ops & OF(parse->request.op)))
			break;
		*seen |= 1u << i;
		return parse_check(parse, members[i].name, i == MEMBER_TOKEN ? NULL : item,
				   members[i].take(parse, item));
	}
	return unknown_member(parse, item);
}

/* What the request is about: one of some sets of members. */
static int target_check(struct parse *parse, unsigned seen)
{
	const unsigned receive = 1u << MEMBER_RECEIVE, receives = 1u << MEMBER_RECEIVES,
		       coupon = 1u << MEMBER_COUPON, user = 1u << MEMBER_USER;
	enum request_op op = parse->request.op;
	int is_use = (USES & OF(op)) != 0;

	if (op != OP_STATUS && !is_use)
		return 0;
	seen &= receive | receives | coupon | user;
	if (is_use && !(seen & coupon))
		seen &= ~user; /* it says whose the receives must be */
	if (seen == receive || seen == (coupon | user) || (is_use && seen == receives))
		return 0;
	return parse_fail(parse, request_operations[op].name, NULL,
			  is_use ? "takes either receive, or receives, or coupon and user"
				 : "takes either receive, or coupon and user");
}

static int members_required(struct parse *parse, unsigned seen)
{
	unsigned amounts = seen & (1u << MEMBER_AMOUNT | 1u << MEMBER_CURRENCY);

	if (target_check(parse, seen))
		return -1;
	for (size_t i = 0; i < MEMBERS_REQUIRED; i++)
		if (members[i].required & OF(parse->request.op) && !(seen & 1u << i))
			return parse_fail(parse, members[i].name, NULL, "is missing");
	if (amounts == 1u << MEMBER_AMOUNT)
		return parse_fail(parse, "currency", NULL, "is missing: an amount needs one");
	if (amounts == 1u << MEMBER_CURRENCY)
		return parse_fail(parse, "amount", NULL, "is missing: a currency is that of one");
	return 0;
}

/* Selects one receive, or all receives of a user. */
static void receives_apply(struct parse *parse, unsigned seen)
{
	struct request *request = &parse->request;

	if (seen & 1u << MEMBER_RECEIVE) {
		request->by_receive = 1;
		request->coupon = request->receive.coupon;
		if (request->op == OP_STATUS)
			request->user = request->receive.user;
	}
	if (!(USES & OF(request->op)))
		return;
	request->names_many = (seen & 1u << MEMBER_RECEIVES) != 0;
	if (!request->names_many) {
		parse->use.receives_n = 1;
		parse->receives[0] = request->receive;
	}
	if (seen & 1u << MEMBER_COUPON)
		parse->receives[0] = (struct receive){ .coupon = request->coupon,
						       .user = request->user,
						       .index = USE_ANY_RECEIVE };
	request->coupon = parse->receives[0].coupon;
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

	if (item && parse_check(parse, "id", item, id_member(parse, item)))
		return -1;
	item = cJSON_GetObjectItemCaseSensitive(root, "op");
	if (item && parse_check(parse, "op", item, op_member(parse, item)))
		return -1;
	if (parse->request.op == OP_COUNT)
		return parse_fail(parse, "op", NULL, "is missing");
	if (has_use(parse))
		parse->use = (struct use){ .ttl_s = USE_TTL_DEFAULT_S, .amount = -1 };
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
	receives_apply(parse, seen);
	return cursor_check(parse);
}

/* The text is not JSON. Names the member, where it is one string that is wrong. */
static void json_fail(struct parse *parse, const struct json_fault *fault, const char *error)
{
	char member[VALUE_SHOWN + 1], why[PARSE_WHY_SIZE - VALUE_SHOWN - sizeof(": ")];

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

/* So that what an order asks for may follow. */
static size_t aligned(size_t size)
{
	size_t unit = _Alignof(struct request_use);

	return (size + unit - 1) / unit * unit;
}

/* The size of what an order asks for; 0: the request is not an order's. */
static size_t use_size(const struct parse *parse)
{
	if (!has_use(parse))
		return 0;
	return sizeof(struct request_use) + parse->use.receives_n * sizeof(parse->receives[0]);
}

static void use_put(struct request *request, const struct parse *parse, char *at)
{
	request->use = (struct request_use *)(void *)at;
	request->use->use = parse->use;
	memcpy(request->use->use.key, request_key(request), request->key_len + 1);
	memcpy(request->use->receives, parse->receives,
	       parse->use.receives_n * sizeof(parse->receives[0]));
}

static struct request *request_new(const struct parse *parse)
{
	size_t id_len = strlen(parse->id), key_len = parse->key ? strlen(parse->key) : 0,
	       trace_len = strlen(parse->trace), code_len = parse->code ? strlen(parse->code) : 0;
	/* One that is claimed gets room for the reference of its code. */
	size_t code_room = code_len > RECEIVE_CODE_MAX || !parse->code ? code_len
								       : RECEIVE_CODE_MAX;
	size_t text_size = aligned(id_len + key_len + trace_len + code_room + 4);
	struct request *request = checked(malloc(sizeof(*request) + text_size + use_size(parse)));
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
	if (use_size(parse) > 0)
		use_put(request, parse, request->text + text_size);
	return request;
}

struct request *request_parse(struct json_arena *arena, const char *text, size_t len,
			      enum request_op op, struct responder *responder)
{
	struct parse parse;
	const char *error;
	const cJSON *root;

	json_mark_skip(&text, &len);
	root = json_parse(arena, text, len, &error);
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
