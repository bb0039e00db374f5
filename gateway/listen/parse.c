/*
 * From the text of a request to the request: the members of its object, of which each has a function
 * that takes it, and what they must be together.
 */
#include "gateway/listen/request.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/message/trace_context.h"
#include "common/message/use.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARSE_WHY_SIZE 256
#define USE_TTL_DEFAULT_S 900
#define VALUE_SHOWN 80                  /* bytes of a wrong value that its error repeats */
#define AMOUNT_TEXT_MAX 999999999999999 /* 15 digits, which a pattern can say */
#define NAME_ALLOWED "must be a string of 1 to 64 printable ASCII bytes"
#define KEY_ALLOWED "must be a string of 1 to 255 printable ASCII bytes"

/* What was taken, before the request is made. */
struct parse {
	char id[REQUEST_ID_SIZE]; /* as JSON */
	const char *key;
	char trace[TRACE_SIZE];
	const char *code;
	const cJSON *cursor; /* checked when the user is known; NULL: none */
	struct use use;      /* without its action and key; only of what an order asks for */
	struct receive receives[USE_RECEIVES_MAX];
	char why[PARSE_WHY_SIZE]; /* what is wrong with a member */
	struct request request;   /* last: its text is not here */
};

/* Each takes a member. NULL, or what is allowed. */

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
		return KEY_ALLOWED;
	parse->key = item->valuestring;
	return NULL;
}

static const char *order_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !printable_valid(item->valuestring, strlen(item->valuestring), USE_ORDER_MAX))
		return NAME_ALLOWED;
	strcpy(parse->use.order, item->valuestring);
	return NULL;
}

static const char *by_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !printable_valid(item->valuestring, strlen(item->valuestring), USE_BY_MAX))
		return NAME_ALLOWED;
	strcpy(parse->use.by, item->valuestring);
	return NULL;
}

static const char *ttl_member(struct parse *parse, const cJSON *item)
{
	return json_integer(item, 1, USE_TTL_MAX_S, &parse->use.ttl_s)
		       ? "must be an integer from 1 to 86400"
		       : NULL;
}

/* A text, too: a query over HTTP has only texts. */
static const char *amount_member(struct parse *parse, const cJSON *item)
{
	const char *text = cJSON_IsString(item) ? item->valuestring : "";
	int is_padded = text[0] == '0' && text[1];
	int rc = cJSON_IsString(item)
			 ? is_padded || number_parse(text, AMOUNT_TEXT_MAX, &parse->use.amount)
			 : json_integer(item, 0, JSON_INTEGER_MAX, &parse->use.amount);

	return rc ? "must be an integer from 0 to 2^53-1, or a string of at most 15 digits, in the "
		    "smallest unit of the currency"
		  : NULL;
}

static const char *currency_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) || !currency_valid(item->valuestring, strlen(item->valuestring)))
		return "must be three capital letters of ISO 4217";
	strcpy(parse->use.currency, item->valuestring);
	return NULL;
}

static const char *reason_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !use_reason_valid(item->valuestring, strlen(item->valuestring)))
		return "must be a string of 1 to 200 printable ASCII bytes";
	strcpy(parse->use.reason, item->valuestring);
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

static const char *receive_read(struct parse *parse, const cJSON *item, struct receive *receive)
{
	const char *text = cJSON_IsString(item) ? item->valuestring : "";
	size_t valid = user_id_valid_length(text, strlen(text));

	if (text[valid]) {
		snprintf(parse->why, sizeof(parse->why),
			 "byte %zu is not allowed: " RECEIVE_ALLOWED, valid + 1);
		return parse->why;
	}
	return receive_parse(receive, text, valid) ? RECEIVE_ALLOWED : NULL;
}

static const char *receive_member(struct parse *parse, const cJSON *item)
{
	return receive_read(parse, item, &parse->request.receive);
}

static const char *receives_member(struct parse *parse, const cJSON *item)
{
	static const char allowed[] = "must be an array of 1 to 16 receives, none of them twice";
	const cJSON *one;
	size_t n = 0;

	if (!cJSON_IsArray(item))
		return allowed;
	cJSON_ArrayForEach(one, item)
	{
		if (n == USE_RECEIVES_MAX)
			return allowed;
		if (receive_read(parse, one, &parse->receives[n])) {
			snprintf(parse->why, sizeof(parse->why), "element %zu " RECEIVE_ALLOWED,
				 n + 1);
			return parse->why;
		}
		n++;
	}
	parse->use.receives_n = n;
	return use_receives_valid(parse->receives, n) ? NULL : allowed;
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

/* A text, too, as above. */
static const char *usable_member(struct parse *parse, const cJSON *item)
{
	const char *text = cJSON_GetStringValue(item);

	parse->request.page.is_usable = cJSON_IsTrue(item) || (text && strcmp(text, "true") == 0);
	return parse->request.page.is_usable || cJSON_IsFalse(item) ||
			       (text && strcmp(text, "false") == 0)
		       ? NULL
		       : "must be true or false";
}

/* It belongs to the user, who may be named after it: checked at the end. */
static const char *cursor_member(struct parse *parse, const cJSON *item)
{
	parse->cursor = item;
	return NULL;
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

#define OF(op) (1u << (op))
#define USES (OF(OP_HOLD) | OF(OP_USE) | OF(OP_RELEASE) | OF(OP_ROLLBACK))
#define ORDERS (USES | OF(OP_QUOTE)) /* what an order asks for */

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
	const char *(*take)(struct parse *parse, const cJSON *item);
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

/* What the members that were seen must be together: one of some sets, with all that is needed. */
static int members_check(struct parse *parse, unsigned seen)
{
	const unsigned receive = 1u << MEMBER_RECEIVE, receives = 1u << MEMBER_RECEIVES,
		       coupon = 1u << MEMBER_COUPON, user = 1u << MEMBER_USER,
		       amount = 1u << MEMBER_AMOUNT, currency = 1u << MEMBER_CURRENCY;
	enum request_op op = parse->request.op;
	unsigned target = seen & (receive | receives | coupon | user);
	int is_use = (USES & OF(op)) != 0;

	if (is_use && !(target & coupon))
		target &= ~user; /* it says whose the receives must be */
	if ((op == OP_STATUS || is_use) && target != receive && target != (coupon | user) &&
	    !(is_use && target == receives))
		return parse_fail(parse, request_operations[op].name, NULL,
				  is_use ? "takes either receive, or receives, or coupon and user"
					 : "takes either receive, or coupon and user");
	for (size_t i = 0; i < MEMBERS_REQUIRED; i++)
		if (members[i].required & OF(op) && !(seen & 1u << i))
			return parse_fail(parse, members[i].name, NULL, "is missing");
	if ((seen & (amount | currency)) == amount)
		return parse_fail(parse, "currency", NULL, "is missing: an amount needs one");
	if ((seen & (amount | currency)) == currency)
		return parse_fail(parse, "amount", NULL, "is missing: a currency is that of one");
	return 0;
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
	struct request *request = &parse->request;
	const struct token *token = request->responder->identity.token;
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "id");
	char message[PARSE_WHY_SIZE];
	unsigned seen = 0;

	/* An id is repeated in each error; the operation decides which members there are. */
	if (item && parse_check(parse, "id", item, id_member(parse, item)))
		return -1;
	item = cJSON_GetObjectItemCaseSensitive(root, "op");
	if (item && parse_check(parse, "op", item, op_member(parse, item)))
		return -1;
	if (request->op == OP_COUNT)
		return parse_fail(parse, "op", NULL, "is missing");
	if (OF(request->op) & ORDERS)
		parse->use = (struct use){ .ttl_s = USE_TTL_DEFAULT_S, .amount = -1 };

	cJSON_ArrayForEach(item, root)
	{
		size_t i = 0;

		if (strcmp(item->string, "id") == 0 || strcmp(item->string, "op") == 0)
			continue;
		while (i < MEMBERS_N && strcmp(members[i].name, item->string) != 0)
			i++;
		if (i == MEMBERS_N || !(members[i].ops & OF(request->op))) {
			snprintf(message, sizeof(message), "%.*s: no such member of %s",
				 (int)shown_length(item->string), item->string,
				 request_operations[request->op].name);
			return message_send(parse, message);
		}
		seen |= 1u << i;
		if (parse_check(parse, members[i].name, i == MEMBER_TOKEN ? NULL : item,
				members[i].take(parse, item)))
			return -1;
	}

	/* The user of a token need not be named again. */
	if (token && members[MEMBER_USER].ops & OF(request->op) &&
	    !(seen & (1u << MEMBER_USER | 1u << MEMBER_RECEIVE))) {
		request->user = token->user;
		seen |= 1u << MEMBER_USER;
	}
	if (members_check(parse, seen) ||
	    key_check(parse, root, request->responder->key, "is not that of Idempotency-Key") ||
	    (token && key_check(parse, root, token->key, "is not that of the token")))
		return -1;

	/* Selects one receive, or all receives of a user. */
	if (seen & 1u << MEMBER_RECEIVE) {
		request->by_receive = 1;
		request->coupon = request->receive.coupon;
		if (request->op == OP_STATUS)
			request->user = request->receive.user;
	}
	if (USES & OF(request->op)) {
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

	item = parse->cursor;
	if (!item)
		return 0;
	if (!cJSON_IsString(item) ||
	    coupon_cursor_parse(&request->page.after, &request->user, item->valuestring,
				strlen(item->valuestring)))
		return parse_fail(parse, "cursor", item,
				  "must be the cursor of a reply to coupons of the same user");
	request->page.is_next = 1;
	return 0;
}

/* In one piece: the request, its texts, and what an order asks for. */
static struct request *request_new(const struct parse *parse)
{
	size_t id_len = strlen(parse->id), key_len = parse->key ? strlen(parse->key) : 0,
	       trace_len = strlen(parse->trace), code_len = parse->code ? strlen(parse->code) : 0;
	/* One that is claimed gets room for the reference of its code. */
	size_t code_room = code_len > RECEIVE_CODE_MAX || !parse->code ? code_len
								       : RECEIVE_CODE_MAX;
	size_t text_size = id_len + key_len + trace_len + code_room + 4, use_size = 0,
	       receives_size = parse->use.receives_n * sizeof(parse->receives[0]),
	       unit = _Alignof(struct request_use);
	int is_order = (OF(parse->request.op) & ORDERS) != 0;
	struct request *request;
	char *at;

	if (is_order) {
		text_size += (unit - text_size % unit) % unit;
		use_size = sizeof(struct request_use) + receives_size;
	}
	request = checked(malloc(sizeof(*request) + text_size + use_size));
	*request = parse->request;
	request->begun_us = clock_monotonic_us();
	request->id_len = id_len;
	request->key_len = key_len;
	request->trace_len = trace_len;
	request->code_len = code_len;
	at = mempcpy(request->text, parse->id, id_len + 1);
	at = mempcpy(at, parse->key ? parse->key : "", key_len + 1);
	at = mempcpy(at, parse->trace, trace_len + 1);
	memcpy(at, parse->code ? parse->code : "", code_len + 1);
	if (is_order) {
		request->use = (struct request_use *)(void *)(request->text + text_size);
		request->use->use = parse->use;
		memcpy(request->use->use.key, request_key(request), key_len + 1);
		memcpy(request->use->receives, parse->receives, receives_size);
	}
	return request;
}

struct request *request_parse(struct json_arena *arena, const char *text, size_t len,
			      enum request_op op, struct responder *responder)
{
	char member[VALUE_SHOWN + 1], why[PARSE_WHY_SIZE - VALUE_SHOWN - sizeof(": ")];
	const struct json_fault *fault;
	struct parse parse;
	const char *error;
	const cJSON *root;

	/* Only what is looked at below: the rest is large. */
	parse.id[0] = '\0';
	parse.trace[0] = '\0';
	if (responder->trace)
		strcpy(parse.trace, responder->trace);
	parse.key = parse.code = NULL;
	parse.cursor = NULL;
	parse.use.receives_n = 0;
	parse.request = (struct request){ .responder = responder,
					  .op = op,
					  .page.limit = REQUEST_PAGE_DEFAULT };

	json_mark_skip(&text, &len);
	root = json_parse(arena, text, len, &error);
	if (cJSON_IsObject(root))
		return object_parse(&parse, root) ? NULL : request_new(&parse);
	fault = json_fault(arena);
	if (root) {
		parse_fail(&parse, "the request", NULL, "must be a JSON object");
	} else if (!fault->member || fault->member_len > VALUE_SHOWN) {
		parse_fail(&parse, "the request", NULL, error);
	} else { /* it is one string that is wrong */
		memcpy(member, fault->member, fault->member_len);
		member[fault->member_len] = '\0';
		if (strcmp(member, "user") == 0)
			error = "must be " USER_ID_ALLOWED;
		snprintf(why, sizeof(why), "byte %zu is not allowed: %s", fault->byte, error);
		parse_fail(&parse, member, NULL, why);
	}
	return NULL;
}
