/* Requests: who asks, what their texts are, and the lines that end them. */
#include "gateway/listen/request.h"

#include "common/check.h"
#include "common/clock.h"

#include <endian.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABANDONED_MS 1000
#define MESSAGE_SIZE 384 /* with the longest key */
#define LINE_SIZE 1792
#define KEY_REUSED_TEXT "key is \"%s\": was used for another request; a new request needs a new key"
#define REPLAYED "\",\"replayed\":true" /* behind the name of the status */
#define USE_LINE_SIZE (2048 + USE_RECEIVES_MAX * 768)
#define CURSOR_VERSION 1

void identity_forget(struct identity *identity)
{
	token_drop(identity->token);
	identity->token = NULL;
	memset(&identity->grant, 0, sizeof(identity->grant));
}

int identity_has_coupon(const struct identity *identity, int64_t coupon)
{
	if (identity->grant.key)
		return key_has_coupon(identity->grant.key, coupon);
	if (identity->token)
		return token_is_for(identity->token, coupon);
	return !identity->is_needed;
}

void responder_line(struct responder *responder, const struct request *request, enum answer answer,
		    char *line)
{
	responder->reply(responder, request, answer, line, strlen(line));
	cJSON_free(line);
}

const struct request_operation request_operations[] = {
#define OP(name, text, reads, cost) [name] = { text, reads, cost },
#include "gateway/listen/op_table.h"
#undef OP
};

const char *const request_ack_names[] = { "accepted", "queued", "issued" };

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

void request_code_set(struct request *request, const char *code, int64_t end_ms)
{
	char *at = (char *)(uintptr_t)request_code(request);
	int len = snprintf(at, REQUEST_CODE_FOUND_MAX + 1, end_ms ? "%s %lld" : "%s", code,
			   (long long)end_ms);

	check(len <= REQUEST_CODE_FOUND_MAX);
	request->code_len = (size_t)len;
}

int64_t request_code_found(const struct request *request, char code[RECEIVE_CODE_MAX + 1])
{
	const char *text = request_code(request), *end = strchr(text, ' ');

	snprintf(code, RECEIVE_CODE_MAX + 1, "%.*s",
		 (int)(end ? end - text : (ptrdiff_t)strlen(text)), text);
	return end ? strtoll(end + 1, NULL, 10) : 0;
}

enum request_op request_op_find(const char *name)
{
	for (int op = 0; op < OP_COUNT; op++)
		if (strcmp(request_operations[op].name, name) == 0)
			return (enum request_op)op;
	return OP_COUNT;
}

int request_is_abandoned(const struct request *request, int64_t now_us)
{
	const struct responder *responder = request->responder;

	return responder->has_left &&
	       responder->left_waited_ms + (now_us - request->begun_us) / 1000 >= ABANDONED_MS;
}

/* Replies. */

/* What answers say of the coupon: the words before and after its id. */
static const struct {
	const char *before;
	const char *after;
} of_coupon[ANSWER_COUNT] = {
	[ANSWER_NOT_FOUND] = { "there is no coupon ", "" },
	[ANSWER_OUT_OF_STOCK] = { "coupon ", " is sold out" },
	[ANSWER_ENDED] = { "coupon ", " has ended" },
	[ANSWER_NOT_STARTED] = { "coupon ", " has not begun" },
	[ANSWER_PAUSED] = { "coupon ", " is paused" },
};

static char *receive_put(char *at, const struct receive *receive)
{
	char text[RECEIVE_SIZE];

	return escaped_append(at, text, receive_format(receive, text));
}

static char *member_put(char *at, const char *name, const char *text)
{
	at = text_append(text_append(text_append(at, ",\""), name), "\":\"");
	return text_append(escaped_append(at, text, strlen(text)), "\"");
}

/* All up to the name of the status. */
static char *head_put(char *at, const struct request *request, enum answer answer)
{
	at = text_append(at, "{");
	if (request->id_len) {
		at = text_append(at, "\"id\":");
		at = text_append(at, request->text);
		at = text_append(at, ",");
	}
	at = number_append(text_append(at, "\"code\":"), answer_code(answer));
	return text_append(at, ",\"status\":\"");
}

/*
 * The replies of the hot path are written without a tree: every part is a number, a constant or a
 * text with a user, and all of them together are shorter than LINE_SIZE.
 */
void request_answer(struct request *request, const struct result *result)
{
	enum answer answer = result->answer;
	int done = answer == ANSWER_OK;
	long long coupon = (long long)request->coupon;
	char line[LINE_SIZE], message[MESSAGE_SIZE], *at = head_put(line, request, answer);

	_Static_assert(LINE_SIZE > REQUEST_ID_SIZE + 2 * MESSAGE_SIZE + RECEIVE_SIZE +
					   2 * USER_ID_MAX + ID_SIZE + 200,
		       "the longest reply must fit");
	at = text_append(at, done ? request_ack_names[result->reached] : answer_status(answer));
	at = text_append(at, result->is_replayed ? REPLAYED : "\"");

	/* A claim is told the coupon when the code exists and the decision is known. */
	if (request->op == OP_CLAIM && request->coupon && answer != ANSWER_CODE_INVALID &&
	    answer_code(answer) < answer_code(ANSWER_BUSY)) {
		at = text_append(at, ",\"coupon\":\"");
		at = text_append(number_append(at, request->coupon), "\"");
	}
	if (result->slot) {
		at = receive_put(text_append(at, ",\"receive\":\""), &result->receive);
		at = number_append(text_append(at, "\",\"slot\":"), result->slot);
	}
	if (answer == ANSWER_REJECTED) {
		at = text_append(text_append(at, ",\"reason\":\""), result->reason);
		at = text_append(at, "\"");
	}

	/* The readable text for what was refused. */
	if (of_coupon[answer].before)
		snprintf(message, sizeof(message), "%s%lld%s", of_coupon[answer].before, coupon,
			 of_coupon[answer].after);
	else if (answer == ANSWER_LIMIT_REACHED)
		snprintf(message, sizeof(message), "user %s has as many of coupon %lld as allowed",
			 request->user.text, coupon);
	else if (answer == ANSWER_UNKNOWN && result->slot)
		snprintf(message, sizeof(message),
			 "accepted, but its outcome is not yet known; query status");
	else if (answer == ANSWER_REJECTED)
		snprintf(message, sizeof(message), "the accepted receive could not be issued: %s",
			 result->reason);
	else if (answer == ANSWER_KEY_REUSED)
		snprintf(message, sizeof(message), KEY_REUSED_TEXT, request_key(request));
	else if (!done)
		snprintf(message, sizeof(message), "%s", answer_text(answer));
	if (!done)
		at = member_put(at, "message", message);
	at = text_append(at, "}");
	request->responder->reply(request->responder, request, answer, line, (size_t)(at - line));
	free(request);
}

/*
 * What a receive of a use that was executed before is now: with the order, if that has it, and with
 * nothing about another one.
 */
static char *now_put(char *at, const struct use_outcome *outcome, const char *order)
{
	char time[CLOCK_RFC3339_SIZE];

	at = text_append(text_append(at, ",\"now\":{\"state\":\""), receive_now_text(outcome->now));
	at = text_append(at, "\"");
	if (outcome->now_is_own)
		at = member_put(at, "order", order);
	if (outcome->now_is_own && outcome->now_until_ms >= 0)
		at = member_put(at, "until", clock_rfc3339(outcome->now_until_ms, time));
	return text_append(at, "}");
}

/* "receive":"…", and what is told of it. */
static char *outcome_put(char *at, const struct use_outcome *outcome, const char *order)
{
	char time[CLOCK_RFC3339_SIZE];

	at = receive_put(text_append(at, "\"receive\":\""), &outcome->receive);
	at = text_append(at, "\"");
	if (outcome->until_ms >= 0)
		at = member_put(at, "until", clock_rfc3339(outcome->until_ms, time));
	if (outcome->amount_off >= 0) {
		at = number_append(text_append(at, ",\"amount_off\":"), outcome->amount_off);
		if (*outcome->currency)
			at = member_put(at, "currency", outcome->currency);
	}
	return outcome->now == NOW_NONE ? at : now_put(at, outcome, order);
}

void request_answer_use(struct request *request, const struct use_outcome *outcomes, size_t n)
{
	const struct use *use = &request->use->use;
	const struct use_outcome *refusal = NULL;
	enum answer answer = ANSWER_OK;
	char line[USE_LINE_SIZE], message[MESSAGE_SIZE], *at;
	long long coupon;

	/* All are refused for the first one that is. */
	check(n > 0 && n <= USE_RECEIVES_MAX);
	for (size_t i = 0; i < n && !refusal; i++) {
		answer = use_result_answer(outcomes[i].result);
		if (answer != ANSWER_OK)
			refusal = &outcomes[i];
	}
	at = head_put(line, request, answer);
	at = text_append(at, refusal ? answer_status(answer) : use_result_text(outcomes->result));
	at = text_append(at, (refusal ? refusal : outcomes)->now == NOW_NONE ? "\"" : REPLAYED);

	if (!refusal && !request->names_many) {
		at = outcome_put(text_append(at, ","), outcomes, use->order);
	} else if (!refusal) {
		at = text_append(at, ",\"receives\":[");
		for (size_t i = 0; i < n; i++) {
			at = text_append(at, i > 0 ? ",{" : "{");
			at = text_append(outcome_put(at, &outcomes[i], use->order), "}");
		}
		at = text_append(at, "]");
	} else {
		if (answer != ANSWER_BAD_REQUEST && answer != ANSWER_KEY_REUSED &&
		    refusal->receive.index != USE_ANY_RECEIVE) {
			at = receive_put(text_append(at, ",\"receive\":\""), &refusal->receive);
			at = text_append(at, "\"");
		}
		if (refusal->now != NOW_NONE)
			at = now_put(at, refusal, use->order);

		coupon = (long long)refusal->receive.coupon;
		if (refusal->result == USE_KEY_TAKEN)
			snprintf(message, sizeof(message), KEY_REUSED_TEXT, use->key);
		else if (refusal->result == USE_AMOUNT_NEEDED)
			snprintf(message, sizeof(message),
				 "amount: is missing: the discount of coupon %lld depends on it",
				 coupon);
		else if (refusal->result == USE_NOT_USED)
			snprintf(message, sizeof(message),
				 "op is \"rollback\": the order has not used the receive; use "
				 "release to end a hold");
		else if (refusal->result == USE_CURRENCY_WRONG)
			snprintf(message, sizeof(message),
				 "currency is \"%s\": must be that of coupon %lld", use->currency,
				 coupon);
		else
			snprintf(message, sizeof(message), "%s", answer_text(answer));
		at = member_put(at, "message", message);
	}
	at = text_append(at, "}");
	request->responder->reply(request->responder, request, answer, line, (size_t)(at - line));
	free(request);
}

void request_fail(struct request *request, enum answer answer, const char *message)
{
	responder_line(request->responder, request, answer,
		       answer_message_line(request->text, answer, message));
	free(request);
}

void request_fail_wait(struct request *request, enum answer answer, int64_t wait_ms,
		       const char *message)
{
	cJSON *object = checked(cJSON_CreateObject());

	cJSON_AddNumberToObject(object, "retry_after_ms", (double)wait_ms);
	cJSON_AddStringToObject(object, "message", message ? message : answer_text(answer));
	request_answer_object(request, answer, NULL, object);
}

void request_answer_object(struct request *request, enum answer answer, const char *status,
			   cJSON *object)
{
	responder_line(request->responder, request, answer,
		       answer_line(request->text, answer, status, object));
	free(request);
}

/* Numbers begin with their highest byte. */
struct __attribute__((packed)) cursor_bytes {
	uint8_t version;
	uint64_t at_us;
	uint64_t coupon;
	uint16_t slot;
	uint64_t check; /* of the user and of the bytes before it */
};

_Static_assert(2 * sizeof(struct cursor_bytes) == COUPON_CURSOR_LEN, "two digits a byte");

/* FNV-1a, 64 bits. */
static uint64_t hash_add(uint64_t hash, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	while (n-- > 0)
		hash = (hash ^ *at++) * 0x100000001b3;
	return hash;
}

char *coupon_cursor_format(const struct coupon_cursor *cursor, const struct user_id *user,
			   char out[COUPON_CURSOR_SIZE])
{
	struct cursor_bytes bytes = { .version = CURSOR_VERSION,
				      .at_us = htobe64((uint64_t)cursor->at_us),
				      .coupon = htobe64((uint64_t)cursor->coupon),
				      .slot = htobe16((uint16_t)cursor->slot) };
	uint64_t hash = hash_add(0xcbf29ce484222325, user->text, user->len);

	bytes.check = htobe64(hash_add(hash, &bytes, offsetof(struct cursor_bytes, check)));
	return sodium_bin2hex(out, COUPON_CURSOR_SIZE, (const unsigned char *)&bytes,
			      sizeof(bytes));
}

int coupon_cursor_parse(struct coupon_cursor *cursor, const struct user_id *user, const char *text,
			size_t len)
{
	char again[COUPON_CURSOR_SIZE];
	struct cursor_bytes bytes;

	if (len != COUPON_CURSOR_LEN ||
	    sodium_hex2bin((unsigned char *)&bytes, sizeof(bytes), text, len, NULL, NULL, NULL))
		return -1;
	cursor->at_us = (int64_t)be64toh(bytes.at_us);
	cursor->coupon = (int64_t)be64toh(bytes.coupon);
	cursor->slot = be16toh(bytes.slot);
	if (cursor->at_us < 0 || cursor->coupon <= 0 || cursor->slot < 1 ||
	    cursor->slot > RECEIVE_SLOT_MAX)
		return -1;
	/* It has one spelling, in lower case, with the version and the check. */
	return memcmp(coupon_cursor_format(cursor, user, again), text, len) == 0 ? 0 : -1;
}
