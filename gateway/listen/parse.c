/*
 * From the text of a request to the request: which members its object may have, what each of them
 * may be, and what they must be together.
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

#define OF(op) (1u << (op))
#define USES (OF(OP_HOLD) | OF(OP_USE) | OF(OP_RELEASE) | OF(OP_ROLLBACK))
#define ORDERS (USES | OF(OP_QUOTE)) /* what an order asks for */
#define PRICED (ORDERS & ~OF(OP_RELEASE))

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
	MEMBER_KEY,
	MEMBER_BY,
	MEMBER_TTL,
	MEMBER_REASON,
	MEMBER_TRACE,
	MEMBER_ACK,
	MEMBER_LIMIT,
	MEMBER_USABLE,
	MEMBER_CURSOR,
	MEMBER_WITHIN,
	MEMBER_TAG,
	MEMBERS_N
};

/* The members beside id and op, those that are missed first in front. */
static const struct {
	const char *name;
	unsigned ops;      /* that take it */
	unsigned required; /* by these */
} members[MEMBERS_N] = {
	[MEMBER_COUPON] = { "coupon",
			    OF(OP_ISSUE) | OF(OP_STATUS) | OF(OP_COUPON) | USES | OF(OP_QUOTE),
			    OF(OP_ISSUE) | OF(OP_COUPON) },
	[MEMBER_CODE] = { "code", OF(OP_CLAIM) | OF(OP_CODE), OF(OP_CLAIM) | OF(OP_CODE) },
	[MEMBER_USER] = { "user",
			  OF(OP_ISSUE) | OF(OP_CLAIM) | OF(OP_CODE) | OF(OP_STATUS) |
				  OF(OP_COUPONS) | OF(OP_OFFERS) | OF(OP_QUOTE) | USES,
			  OF(OP_ISSUE) | OF(OP_CLAIM) | OF(OP_CODE) | OF(OP_COUPONS) },
	[MEMBER_AMOUNT] = { "amount", PRICED, OF(OP_QUOTE) },
	[MEMBER_CURRENCY] = { "currency", PRICED, OF(OP_QUOTE) },
	[MEMBER_ORDER] = { "order", USES, USES },
	[MEMBER_TOKEN] = { "token", OF(OP_AUTH), OF(OP_AUTH) },
	[MEMBER_RECEIVE] = { "receive", OF(OP_STATUS) | USES, 0 },
	[MEMBER_RECEIVES] = { "receives", USES, 0 },
	[MEMBER_KEY] = { "key", OF(OP_ISSUE) | OF(OP_CLAIM) | USES, 0 },
	[MEMBER_BY] = { "by", USES, 0 },
	[MEMBER_TTL] = { "ttl_s", OF(OP_HOLD), 0 },
	[MEMBER_REASON] = { "reason", OF(OP_ROLLBACK), 0 },
	[MEMBER_TRACE] = { "trace", OF(OP_ISSUE) | OF(OP_CLAIM) | USES, 0 },
	[MEMBER_ACK] = { "ack", OF(OP_ISSUE) | OF(OP_CLAIM), 0 },
	[MEMBER_LIMIT] = { "limit", OF(OP_COUPONS) | OF(OP_OFFERS) | OF(OP_QUOTE), 0 },
	[MEMBER_USABLE] = { "usable", OF(OP_COUPONS), 0 },
	[MEMBER_CURSOR] = { "cursor", OF(OP_COUPONS) | OF(OP_OFFERS), 0 },
	[MEMBER_WITHIN] = { "within", OF(OP_OFFERS), 0 },
	[MEMBER_TAG] = { "tag", OF(OP_OFFERS), 0 },
};

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

static const char *op_member(struct parse *parse, const cJSON *item)
{
	if (parse->request.op != OP_COUNT)
		return "is not allowed as a member here: the path names the operation";
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

#define RECEIVE_ALLOWED \
	"must be a receive in the form that answers have, <coupon>.<user>.<batch>.<index>"

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

static const char *receives_member(struct parse *parse, const cJSON *item)
{
	static const char allowed[] = "must be an array of 1 to 16 different receives";
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

/* Seconds, or a text with a unit, as 7d. */
static const char *within_member(struct request *request, const cJSON *item)
{
	static const char units[] = "smhd";
	static const int64_t seconds_of[] = { 1, 60, 3600, 86400 };
	const char *text = cJSON_GetStringValue(item), *unit = NULL;
	int64_t *seconds = &request->page.within_s;
	size_t len = text ? strspn(text, "0123456789") : 0;
	char digits[NUMBER_SIZE];
	int is_wrong;

	if (!text) {
		is_wrong = json_integer(item, 0, REQUEST_WITHIN_MAX, seconds);
	} else {
		snprintf(digits, sizeof(digits), "%.*s", (int)len, text);
		is_wrong = len == 0 || len > strlen("999999999") ||
			   number_parse(digits, REQUEST_WITHIN_MAX, seconds);
		if (!is_wrong && text[len]) {
			unit = strchr(units, text[len]);
			is_wrong = !unit || text[len + 1];
			*seconds *= unit ? seconds_of[unit - units] : 1;
		}
	}
	return is_wrong ? "must be seconds or a text as 7d, 12h, 30m or 90s, of at most 9 digits"
			: NULL;
}

/*
 * Takes a member. Returns NULL, or what is allowed. Numbers and truth values may be texts, too: a
 * query over HTTP has only texts.
 */
static const char *member_take(struct parse *parse, enum member member, const cJSON *item)
{
	struct request *request = &parse->request;
	struct use *use = &parse->use;
	const char *string = cJSON_GetStringValue(item), *text = string ? string : "", *error;
	size_t len = strlen(text);
	struct trace_context context;
	int64_t limit;
	int is_wrong;

	switch (member) {
	case MEMBER_COUPON:
		return json_id(item, &request->coupon, &error) ? error : NULL;
	case MEMBER_CODE: /* its form is checked later: whatever is no code gets one answer */
		if (len == 0 || len > REQUEST_CODE_MAX)
			return "must be a string of 1 to 128 bytes";
		parse->code = text;
		return NULL;
	case MEMBER_USER:
		return user_member(parse, item);
	case MEMBER_AMOUNT:
		if (string)
			is_wrong = (text[0] == '0' && text[1]) ||
				   number_parse(text, AMOUNT_TEXT_MAX, &use->amount);
		else
			is_wrong = json_integer(item, 0, JSON_INTEGER_MAX, &use->amount);
		return is_wrong ? "must be an integer from 0 to 2^53-1, or a string of at most 15 "
				  "digits, in the smallest unit of the currency"
				: NULL;
	case MEMBER_CURRENCY:
		if (!currency_valid(text, len))
			return "must be three capital letters of ISO 4217";
		strcpy(use->currency, text);
		return NULL;
	case MEMBER_ORDER:
		if (!printable_valid(text, len, USE_ORDER_MAX))
			return NAME_ALLOWED;
		strcpy(use->order, text);
		return NULL;
	case MEMBER_TOKEN: /* its value is never repeated: it is a secret */
		if (len == 0 || len > TOKEN_BYTES_MAX)
			return "must be a key or a token, a string of 1 to 4096 bytes";
		parse->code = text;
		return NULL;
	case MEMBER_RECEIVE:
		return receive_read(parse, item, &request->receive);
	case MEMBER_RECEIVES:
		return receives_member(parse, item);
	case MEMBER_KEY:
		if (!receive_key_valid(text, len))
			return KEY_ALLOWED;
		parse->key = text;
		return NULL;
	case MEMBER_BY:
		if (!printable_valid(text, len, USE_BY_MAX))
			return NAME_ALLOWED;
		strcpy(use->by, text);
		return NULL;
	case MEMBER_TTL:
		return json_integer(item, 1, USE_TTL_MAX_S, &use->ttl_s)
			       ? "must be an integer from 1 to 86400"
			       : NULL;
	case MEMBER_REASON:
		if (!use_reason_valid(text, len))
			return "must be a string of 1 to 200 printable ASCII bytes";
		strcpy(use->reason, text);
		return NULL;
	case MEMBER_TRACE:
		if (trace_context_parse(text, len, &context))
			return "must be a traceparent of W3C Trace Context, for example 00-<32 "
			       "digits>-<16 digits>-01";
		/* Where the caller's tracing does not record it, nothing is handed on. */
		*parse->trace = '\0';
		if (context.is_sampled)
			trace_context_format(&context, request->responder->name, parse->trace);
		return NULL;
	case MEMBER_ACK:
		for (int ack = 0; ack <= ACK_ISSUED; ack++) {
			if (strcmp(text, request_ack_names[ack]) == 0) {
				request->ack = (enum request_ack)ack;
				return NULL;
			}
		}
		return "must be accepted, queued or issued";
	case MEMBER_LIMIT:
		is_wrong = string ? id_parse(text, len, &limit)
				  : json_integer(item, 1, REQUEST_PAGE_MAX, &limit);
		if (is_wrong || limit > REQUEST_PAGE_MAX)
			return "must be an integer from 1 to 100";
		request->page.limit = (int)limit;
		return NULL;
	case MEMBER_USABLE:
		request->page.is_usable = cJSON_IsTrue(item) || strcmp(text, "true") == 0;
		return request->page.is_usable || cJSON_IsFalse(item) || strcmp(text, "false") == 0
			       ? NULL
			       : "must be true or false";
	case MEMBER_CURSOR: /* it belongs to the user, who may be named after it */
		parse->cursor = item;
		return NULL;
	case MEMBER_WITHIN:
		return within_member(request, item);
	case MEMBER_TAG:
		if (len == 0 || len > TAG_MAX || strspn(text, TAG_BYTES) != len)
			return "must be a string of 1 to 32 lower-case letters, digits, '.', '_' "
			       "and '-'";
		parse->code = text;
		return NULL;
	case MEMBERS_N:
		break;
	}
	check_failed(__FILE__, __LINE__, "a member of the enum");
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

/* Sends bad_request: the member, its value and what is allowed (NULL: all is well). 0, or -1. */
static int parse_fail(struct parse *parse, const char *member, const cJSON *value,
		      const char *allowed)
{
	char message[PARSE_WHY_SIZE], *text;

	if (!allowed)
		return 0;
	text = value ? json_write(value) : NULL;
	if (text)
		snprintf(message, sizeof(message), "%s is %.*s: %s", member,
			 (int)shown_length(text), text, allowed);
	else
		snprintf(message, sizeof(message), "%s: %s", member, allowed);
	cJSON_free(text);
	responder_line(parse->request.responder, NULL, ANSWER_BAD_REQUEST,
		       answer_message_line(parse->id, ANSWER_BAD_REQUEST, message));
	return -1;
}

/* What the members that were seen must be together: one of some sets, with all that is needed. */
static int members_check(struct parse *parse, unsigned seen)
{
	const unsigned receive = 1u << MEMBER_RECEIVE, receives = 1u << MEMBER_RECEIVES,
		       coupon = 1u << MEMBER_COUPON, user = 1u << MEMBER_USER,
		       amount = 1u << MEMBER_AMOUNT, currency = 1u << MEMBER_CURRENCY,
		       limit = 1u << MEMBER_LIMIT;
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
	if (op == OP_QUOTE && target != coupon && target != user)
		return parse_fail(parse, request_operations[op].name, NULL,
				  "takes either coupon, or user");
	if (op == OP_QUOTE && target == coupon && seen & limit)
		return parse_fail(parse, "limit", NULL, "is for the quote of a user");
	if (op == OP_ROLLBACK && seen & receives && seen & amount)
		return parse_fail(parse, "amount", NULL,
				  "is a part of the discount of one receive, not of receives");
	for (size_t i = 0; i < MEMBERS_REQUIRED; i++)
		if (members[i].required & OF(op) && !(seen & 1u << i))
			return parse_fail(parse, members[i].name, NULL, "is missing");
	if ((seen & (amount | currency)) == amount)
		return parse_fail(parse, "currency", NULL,
				  "is missing: an amount needs a currency");
	if ((seen & (amount | currency)) == currency)
		return parse_fail(parse, "amount", NULL, "is missing: a currency needs an amount");
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
	char name[VALUE_SHOWN + 1], why[64];
	unsigned seen = 0;

	/* An id is repeated in each error; the operation decides which members there are. */
	if (item && parse_fail(parse, "id", item, id_member(parse, item)))
		return -1;
	item = cJSON_GetObjectItemCaseSensitive(root, "op");
	if (item && parse_fail(parse, "op", item, op_member(parse, item)))
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
			snprintf(name, sizeof(name), "%.*s", (int)shown_length(item->string),
				 item->string);
			snprintf(why, sizeof(why), "no such member of %s",
				 request_operations[request->op].name);
			return parse_fail(parse, name, NULL, why);
		}
		seen |= 1u << i;
		if (parse_fail(parse, members[i].name, i == MEMBER_TOKEN ? NULL : item,
			       member_take(parse, (enum member)i, item)))
			return -1;
	}

	/* The user of a token need not be named again. */
	if (token && members[MEMBER_USER].ops & OF(request->op) &&
	    !(seen & (1u << MEMBER_USER | 1u << MEMBER_RECEIVE)) &&
	    !(request->op == OP_QUOTE && seen & 1u << MEMBER_COUPON)) {
		request->user = token->user;
		seen |= 1u << MEMBER_USER;
	}
	if (members_check(parse, seen) ||
	    key_check(parse, root, request->responder->key,
		      "differs from the header Idempotency-Key") ||
	    (token && key_check(parse, root, token->key, "differs from the key of the token")))
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
				  request->op == OP_OFFERS
					  ? "must be the cursor of a reply to offers with the same "
					    "user"
					  : "must be the cursor of a reply to coupons of the same "
					    "user");
	request->page.is_next = 1;
	return 0;
}

/* In one piece: the request, its texts, and what an order asks for. */
static struct request *request_new(const struct parse *parse)
{
	size_t id_len = strlen(parse->id), key_len = parse->key ? strlen(parse->key) : 0,
	       trace_len = strlen(parse->trace), code_len = parse->code ? strlen(parse->code) : 0;
	/* There is room for which code it is. */
	size_t code_room = code_len > REQUEST_CODE_FOUND_MAX || !parse->code
				   ? code_len
				   : REQUEST_CODE_FOUND_MAX;
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
					  .page.limit = REQUEST_PAGE_DEFAULT,
					  .page.within_s = REQUEST_WITHIN_DEFAULT_S };

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
