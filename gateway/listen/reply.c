/* The replies that end requests: the lines that go to their responders. */
#include "gateway/listen/request.h"

#include "common/check.h"
#include "common/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_SIZE 384 /* with the longest key */
#define LINE_SIZE 1792
#define KEY_REUSED_TEXT "key is \"%s\": was used for another request; a new request needs a new key"
#define REPLAYED "\",\"replayed\":true" /* behind the name of the status */
#define USE_LINE_SIZE (2048 + USE_RECEIVES_MAX * 768)

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

/* The readable text for a refused issue. */
static void refusal_text(const struct request *request, const struct result *result,
			 char message[MESSAGE_SIZE])
{
	const char *before = of_coupon[result->answer].before;
	long long coupon = (long long)request->coupon;

	if (before)
		snprintf(message, MESSAGE_SIZE, "%s%lld%s", before, coupon,
			 of_coupon[result->answer].after);
	else if (result->answer == ANSWER_LIMIT_REACHED)
		snprintf(message, MESSAGE_SIZE, "user %s has as many of coupon %lld as allowed",
			 request->user.text, coupon);
	else if (result->answer == ANSWER_UNKNOWN && result->slot)
		snprintf(message, MESSAGE_SIZE,
			 "accepted, but its outcome is not yet known; query status");
	else if (result->answer == ANSWER_REJECTED)
		snprintf(message, MESSAGE_SIZE, "the accepted receive could not be issued: %s",
			 result->reason);
	else if (result->answer == ANSWER_KEY_REUSED)
		snprintf(message, MESSAGE_SIZE, KEY_REUSED_TEXT, request_key(request));
	else
		snprintf(message, MESSAGE_SIZE, "%s", answer_text(result->answer));
}

static char *receive_put(char *at, const struct receive *receive)
{
	char text[RECEIVE_SIZE];

	return escaped_append(at, text, receive_format(receive, text));
}

/* Whether the reply to a claim names the coupon: the code exists, and the decision is known. */
static int names_coupon(const struct request *request, enum answer answer)
{
	return request->op == OP_CLAIM && request->coupon && answer != ANSWER_CODE_INVALID &&
	       answer_code(answer) < answer_code(ANSWER_BUSY);
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
	int done = result->answer == ANSWER_OK;
	char line[LINE_SIZE], message[MESSAGE_SIZE];
	char *at = head_put(line, request, result->answer);

	_Static_assert(LINE_SIZE > REQUEST_ID_SIZE + 2 * MESSAGE_SIZE + RECEIVE_SIZE +
					   2 * USER_ID_MAX + ID_SIZE + 200,
		       "the longest reply must fit");
	at = text_append(at,
			 done ? request_ack_names[result->reached] : answer_status(result->answer));
	at = text_append(at, result->is_replayed ? REPLAYED : "\"");
	if (names_coupon(request, result->answer)) {
		at = text_append(at, ",\"coupon\":\"");
		at = text_append(number_append(at, request->coupon), "\"");
	}
	if (result->slot) {
		at = text_append(at, ",\"receive\":\"");
		at = receive_put(at, &result->receive);
		at = number_append(text_append(at, "\",\"slot\":"), result->slot);
	}
	if (result->answer == ANSWER_REJECTED) {
		at = text_append(text_append(at, ",\"reason\":\""), result->reason);
		at = text_append(at, "\"");
	}
	if (!done) {
		refusal_text(request, result, message);
		at = escaped_append(text_append(at, ",\"message\":\""), message, strlen(message));
		at = text_append(at, "\"");
	}
	at = text_append(at, "}");
	request->responder->reply(request->responder, request, result->answer, line,
				  (size_t)(at - line));
	free(request);
}

/* The first one that is refused, for which the others are; NULL: all is done. */
static const struct use_outcome *refusal_of(const struct use_outcome *outcomes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (use_result_answer(outcomes[i].result) != ANSWER_OK)
			return &outcomes[i];
	return NULL;
}

/* The readable text for a refused use. */
static void use_refusal_text(const struct request *request, const struct use_outcome *refusal,
			     char message[MESSAGE_SIZE])
{
	const struct use *use = &request->use->use;
	long long coupon = (long long)refusal->receive.coupon;

	if (refusal->result == USE_KEY_TAKEN)
		snprintf(message, MESSAGE_SIZE, KEY_REUSED_TEXT, use->key);
	else if (refusal->result == USE_AMOUNT_NEEDED)
		snprintf(message, MESSAGE_SIZE,
			 "amount: is missing: what coupon %lld takes off depends on it", coupon);
	else if (refusal->result == USE_NOT_USED)
		snprintf(message, MESSAGE_SIZE,
			 "op is \"rollback\": the order holds the receive and has not used it; a "
			 "hold is given up by release");
	else if (refusal->result == USE_CURRENCY_WRONG)
		snprintf(message, MESSAGE_SIZE, "currency is \"%s\": must be that of coupon %lld",
			 use->currency, coupon);
	else
		snprintf(message, MESSAGE_SIZE, "%s",
			 answer_text(use_result_answer(refusal->result)));
}

static char *member_put(char *at, const char *name, const char *text)
{
	at = text_append(text_append(text_append(at, ",\""), name), "\":\"");
	return text_append(escaped_append(at, text, strlen(text)), "\"");
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

/* "receives":[{…},…], or what is told of the only one. */
static char *outcomes_put(char *at, const struct request *request,
			  const struct use_outcome *outcomes, size_t n)
{
	const char *order = request->use->use.order;

	if (!request->names_many)
		return outcome_put(text_append(at, ","), outcomes, order);
	at = text_append(at, ",\"receives\":[");
	for (size_t i = 0; i < n; i++) {
		at = outcome_put(text_append(at, i > 0 ? ",{" : "{"), &outcomes[i], order);
		at = text_append(at, "}");
	}
	return text_append(at, "]");
}

static char *use_refusal_put(char *at, const struct request *request,
			     const struct use_outcome *refusal)
{
	enum answer answer = use_result_answer(refusal->result);
	char message[MESSAGE_SIZE];

	if (answer != ANSWER_BAD_REQUEST && answer != ANSWER_KEY_REUSED &&
	    refusal->receive.index != USE_ANY_RECEIVE) {
		at = receive_put(text_append(at, ",\"receive\":\""), &refusal->receive);
		at = text_append(at, "\"");
	}
	if (refusal->now != NOW_NONE)
		at = now_put(at, refusal, request->use->use.order);
	use_refusal_text(request, refusal, message);
	return member_put(at, "message", message);
}

void request_answer_use(struct request *request, const struct use_outcome *outcomes, size_t n)
{
	const struct use_outcome *refusal = refusal_of(outcomes, n);
	enum answer answer = refusal ? use_result_answer(refusal->result) : ANSWER_OK;
	char line[USE_LINE_SIZE], *at = head_put(line, request, answer);

	check(n > 0 && n <= USE_RECEIVES_MAX);
	at = text_append(at, refusal ? answer_status(answer) : use_result_text(outcomes->result));
	at = text_append(at, (refusal ? refusal : outcomes)->now == NOW_NONE ? "\"" : REPLAYED);
	at = refusal ? use_refusal_put(at, request, refusal)
		     : outcomes_put(at, request, outcomes, n);
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
