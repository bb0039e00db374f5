#include "gateway/admit/call.h"

#include "common/check.h"
#include "coupon/slot.h"

#include <stdlib.h>
#include <string.h>

#define REQUESTS_ENOUGH 192 /* with so many a bundle is full, so that few calls are cut to fit */

struct bundle *bundle_new(void)
{
	struct bundle *bundle = checked(calloc(1, sizeof(*bundle)));

	STAILQ_INIT(&bundle->calls);
	return bundle;
}

size_t bundle_room(const struct bundle *bundle)
{
	return bundle_is_filled_by(bundle->requests, bundle->calls_n)
		       ? 0
		       : BUNDLE_REQUESTS_MAX - bundle->requests;
}

int bundle_is_filled_by(size_t requests, size_t coupons)
{
	return requests >= REQUESTS_ENOUGH || coupons >= BUNDLE_CALLS_MAX;
}

void bundle_add(struct bundle *bundle, struct call *call)
{
	check(call->requests_n <= bundle_room(bundle));
	STAILQ_INSERT_TAIL(&bundle->calls, call, next);
	bundle->calls_n++;
	bundle->requests += call->requests_n;
}

struct call *bundle_take(struct bundle *bundle)
{
	struct call *call = STAILQ_FIRST(&bundle->calls);

	if (call)
		STAILQ_REMOVE_HEAD(&bundle->calls, next);
	return call;
}

static void word_len_add(struct bundle_command *command, const char *word, size_t len)
{
	command->words[command->n] = word;
	command->lengths[command->n++] = len;
}

static void word_add(struct bundle_command *command, const char *word)
{
	word_len_add(command, word, strlen(word));
}

void bundle_command_make(struct bundle_command *command, const struct bundle *bundle,
			 const char *script, const char *run_id, const char *unsettled_max)
{
	const struct call *call;
	int first_key;
	size_t i = 0;

	command->n = 0;
	word_add(command, "EVALSHA");
	word_add(command, script);

	/* The keys follow their number, which is not known before. */
	first_key = ++command->n;
	STAILQ_FOREACH (call, &bundle->calls, next) {
		struct coupon_keys *keys = &command->calls[i++].keys;

		coupon_keys_make(keys, call->coupon_id,
				 call->has_codes ? COUPON_KEYS_CLAIM : COUPON_KEYS_ISSUE);
		for (int key = 0; key < keys->n; key++)
			word_add(command, keys->names[key]);
	}
	number_text(command->n - first_key, command->keys_n);
	command->words[first_key - 1] = command->keys_n;
	command->lengths[first_key - 1] = strlen(command->keys_n);

	word_add(command, run_id);
	word_add(command, unsettled_max);
	i = 0;
	STAILQ_FOREACH (call, &bundle->calls, next) {
		struct call_words *own = &command->calls[i++];

		id_format(call->coupon_id, own->coupon);
		word_add(command, own->coupon);
		word_len_add(command, ulid_format(&call->batch, own->batch), ULID_LEN);
		word_add(command, number_text(call->seen_generation, own->generation));
		word_add(command, number_text(call->seen_seq, own->seq));
		number_text((int64_t)call->requests_n, own->count);
		strcat(own->count, call->has_keys ? "k" : "");
		strcat(own->count, call->has_codes ? "c" : "");
		word_add(command, strcat(own->count, call->has_traces ? "t" : ""));
		for (size_t n = 0; n < call->requests_n; n++) {
			const struct request *request = call->requests[n];

			word_len_add(command, request->user.text, request->user.len);
			if (call->has_keys)
				word_len_add(command, request_key(request), request->key_len);
			if (call->has_codes)
				word_len_add(command, request_code(request), request->code_len);
			if (call->has_traces)
				word_len_add(command, request_trace(request), request->trace_len);
		}
	}
}

#define HEAD_N 7 /* elements before the verdicts */

/*
 * A slot that was taken now, minus the code of an answer with which the script refuses, or
 * `SLOT:BATCH:INDEX` of a receive whose key was known.
 */
static int verdict_decode(const redisReply *element, struct verdict *verdict)
{
	long long number = element->integer;
	const char *text, *end;
	int64_t index;

	if (element->type == REDIS_REPLY_INTEGER && number > 0 && number <= RECEIVE_SLOT_MAX) {
		*verdict = (struct verdict){ .answer = ANSWER_OK, .slot = (int)number };
		return 0;
	}
	if (element->type == REDIS_REPLY_INTEGER) {
		if (number != -answer_code(ANSWER_BUSY) &&
		    number != -answer_code(ANSWER_CODE_EXPIRED) &&
		    number != -answer_code(ANSWER_KEY_REUSED) &&
		    (number > -answer_code(ANSWER_OUT_OF_STOCK) ||
		     number < -answer_code(ANSWER_CODE_USED)))
			return -1;
		*verdict = (struct verdict){ .answer = answer_from_code((int)-number) };
		return 0;
	}

	if (element->type != REDIS_REPLY_STRING)
		return -1;
	*verdict = (struct verdict){ .answer = ANSWER_OK, .repeated = 1 };
	text = element->str;
	end = text + element->len;
	verdict->slot = slot_number_take(&text, RECEIVE_SLOT_MAX);
	if (verdict->slot < 1 || end - text < ULID_LEN + 2 ||
	    ulid_parse(&verdict->batch, text, ULID_LEN) || text[ULID_LEN] != ':')
		return -1;
	text += ULID_LEN + 1;
	if (strlen(text) != (size_t)(end - text) || (*text == '0' && text[1]) ||
	    number_parse(text, RECEIVE_INDEX_MAX, &index))
		return -1;
	verdict->index = (int)index;
	return 0;
}

/* Whether the elements from `first` up to `last` are numbers that are not negative. */
static int numbers_valid(const redisReply *reply, size_t first, size_t last)
{
	for (size_t i = first; i <= last; i++)
		if (reply->element[i]->type != REDIS_REPLY_INTEGER ||
		    reply->element[i]->integer < 0)
			return 0;
	return 1;
}

int script_reply_decode(const redisReply *reply, size_t requests_n, struct call_reply *decoded)
{
	static const char *const states[] = { [CALL_OK] = "ok",
					      [CALL_MISSING] = "missing",
					      [CALL_UNVERIFIED] = "unverified",
					      [CALL_BEHIND] = "behind" };
	size_t accepted = 0;

	memset(decoded, 0, offsetof(struct call_reply, verdicts));
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
	    reply->element[0]->type != REDIS_REPLY_STRING || !numbers_valid(reply, 1, 2))
		return -1;
	while (strcmp(reply->element[0]->str, states[decoded->state]) != 0)
		if (decoded->state++ == CALL_BEHIND)
			return -1;
	decoded->generation = reply->element[1]->integer;
	decoded->seq = reply->element[2]->integer;
	if (decoded->state != CALL_OK)
		return 0;
	if (reply->elements != HEAD_N + requests_n || !numbers_valid(reply, 3, 5) ||
	    reply->element[6]->type != REDIS_REPLY_STRING)
		return -1;
	decoded->now_ms = reply->element[4]->integer;
	decoded->begin_ms = reply->element[5]->integer;
	decoded->body = reply->element[6]->str;
	decoded->body_len = reply->element[6]->len;
	for (size_t i = 0; i < requests_n; i++) {
		struct verdict *verdict = &decoded->verdicts[i];

		if (verdict_decode(reply->element[HEAD_N + i], verdict))
			return -1;
		accepted += verdict->answer == ANSWER_OK && !verdict->repeated;
	}
	return (accepted > 0) == (decoded->body_len > 0) ? 0 : -1;
}
