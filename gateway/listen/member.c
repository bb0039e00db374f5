#include "gateway/listen/member.h"

#include "common/message/number.h"

#include <stdio.h>
#include <string.h>

#define AMOUNT_TEXT_MAX 999999999999999 /* 15 digits, which a pattern can say */
#define NAME_ALLOWED "must be a string of 1 to 64 printable ASCII bytes"
#define KEY_ALLOWED "must be a string of 1 to 255 printable ASCII bytes"

const char *id_member(struct parse *parse, const cJSON *item)
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

const char *coupon_member(struct parse *parse, const cJSON *item)
{
	const char *error;

	return json_id(item, &parse->request.coupon, &error) ? error : NULL;
}

const char *user_member(struct parse *parse, const cJSON *item)
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

const char *op_member(struct parse *parse, const cJSON *item)
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

const char *key_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !receive_key_valid(item->valuestring, strlen(item->valuestring)))
		return KEY_ALLOWED;
	parse->key = item->valuestring;
	return NULL;
}

const char *order_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !printable_valid(item->valuestring, strlen(item->valuestring), USE_ORDER_MAX))
		return NAME_ALLOWED;
	strcpy(parse->use.order, item->valuestring);
	return NULL;
}

const char *by_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !printable_valid(item->valuestring, strlen(item->valuestring), USE_BY_MAX))
		return NAME_ALLOWED;
	strcpy(parse->use.by, item->valuestring);
	return NULL;
}

const char *ttl_member(struct parse *parse, const cJSON *item)
{
	return json_integer(item, 1, USE_TTL_MAX_S, &parse->use.ttl_s)
		       ? "must be an integer from 1 to 86400"
		       : NULL;
}

/* A text, too: a query over HTTP has only texts. */
const char *amount_member(struct parse *parse, const cJSON *item)
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

const char *currency_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) || !currency_valid(item->valuestring, strlen(item->valuestring)))
		return "must be three capital letters of ISO 4217";
	strcpy(parse->use.currency, item->valuestring);
	return NULL;
}

const char *reason_member(struct parse *parse, const cJSON *item)
{
	if (!cJSON_IsString(item) ||
	    !use_reason_valid(item->valuestring, strlen(item->valuestring)))
		return "must be a string of 1 to 200 printable ASCII bytes";
	strcpy(parse->use.reason, item->valuestring);
	return NULL;
}

/* Where the caller's tracing does not record the request, nothing is handed on. */
const char *trace_member(struct parse *parse, const cJSON *item)
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
const char *code_member(struct parse *parse, const cJSON *item)
{
	size_t len = cJSON_IsString(item) ? strlen(item->valuestring) : 0;

	if (len == 0 || len > REQUEST_CODE_MAX)
		return "must be a string of 1 to 128 bytes";
	parse->code = item->valuestring;
	return NULL;
}

/* Its value is never repeated: it is a secret. */
const char *token_member(struct parse *parse, const cJSON *item)
{
	size_t len = cJSON_IsString(item) ? strlen(item->valuestring) : 0;

	if (len == 0 || len > TOKEN_BYTES_MAX)
		return "must be a key or a token, a string of 1 to 4096 bytes";
	parse->code = item->valuestring;
	return NULL;
}

const char *ack_member(struct parse *parse, const cJSON *item)
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

const char *receive_member(struct parse *parse, const cJSON *item)
{
	return receive_read(parse, item, &parse->request.receive);
}

const char *receives_member(struct parse *parse, const cJSON *item)
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
const char *limit_member(struct parse *parse, const cJSON *item)
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
const char *usable_member(struct parse *parse, const cJSON *item)
{
	const char *text = cJSON_GetStringValue(item);

	parse->request.page.is_usable = cJSON_IsTrue(item) || (text && strcmp(text, "true") == 0);
	return parse->request.page.is_usable || cJSON_IsFalse(item) ||
			       (text && strcmp(text, "false") == 0)
		       ? NULL
		       : "must be true or false";
}

/* It belongs to the user, who may be named after it: checked at the end. */
const char *cursor_member(struct parse *parse, const cJSON *item)
{
	parse->cursor = item;
	return NULL;
}
