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

/* The keys follow their number, which is not known before. */
static void keys_add(struct bundle_command *command, const struct bundle *bundle)
{
	const struct call *call;
	int first = ++command->n;
	size_t i = 0;

	STAILQ_FOREACH (call, &bundle->calls, next) {
		struct coupon_keys *keys = &command->parts[i++].keys;

		coupon_keys_make(keys, call->coupon_id,
				 call->has_codes ? COUPON_KEYS_CLAIM : COUPON_KEYS_ISSUE);
		for (int key = 0; key < keys->n; key++)
			word_add(command, keys->names[key]);
	}
	number_text(command->n - first, command->keys_n);
	command->words[first - 1] = command->keys_n;
	command->lengths[first - 1] = strlen(command->keys_n);
}

/* The arguments of the call that is the part `i`. */
static void part_add(struct bundle_command *command, const struct call *call, size_t i)
{
	id_format(call->coupon_id, command->parts[i].coupon);
	word_add(command, command->parts[i].coupon);
	word_len_add(command, ulid_format(&call->batch, command->parts[i].batch), ULID_LEN);
	word_add(command, number_text(call->seen_generation, command->parts[i].generation));
	word_add(command, number_text(call->seen_seq, command->parts[i].seq));
	number_text((int64_t)call->requests_n, command->parts[i].count);
	strcat(command->parts[i].count, call->has_keys ? "k" : "");
	strcat(command->parts[i].count, call->has_codes ? "c" : "");
	word_add(command, strcat(command->parts[i].count, call->has_traces ? "t" : ""));
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

void bundle_command_make(struct bundle_command *command, const struct bundle *bundle,
			 const char *script, const char *run_id, const char *unsettled_max)
{
	const struct call *call;
	size_t i = 0;

	command->n = 0;
	word_add(command, "EVALSHA");
	word_add(command, script);
	keys_add(command, bundle);
	word_add(command, run_id);
	word_add(command, unsettled_max);
	STAILQ_FOREACH (call, &bundle->calls, next)
		part_add(command, call, i++);
}

#define HEAD_N 7 /* elements before the verdicts */

static int state_decode(const redisReply *element, enum call_state *state)
{
	static const char *const names[] = { [CALL_OK] = "ok",
					     [CALL_MISSING] = "missing",
					     [CALL_UNVERIFIED] = "unverified",
					     [CALL_BEHIND] = "behind" };

	if (element->type != REDIS_REPLY_STRING)
		return -1;
	for (*state = CALL_OK; *state <= CALL_BEHIND; (*state)++)
		if (strcmp(element->str, names[*state]) == 0)
			return 0;
	return -1;
}

/* `SLOT:BATCH:INDEX` of a receive whose key was known. */
static int repeated_decode(const redisReply *element, struct verdict *verdict)
{
	const char *text = element->str, *end = element->str + element->len;
	int64_t index;

	verdict->answer = ANSWER_OK;
	verdict->repeated = 1;
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

/* Whether it is minus the code of an answer with which the script refuses. */
static int is_refusal(long long number)
{
	return number == -answer_code(ANSWER_BUSY) || number == -answer_code(ANSWER_KEY_REUSED) ||
	       (number <= -answer_code(ANSWER_OUT_OF_STOCK) &&
		number >= -answer_code(ANSWER_CODE_USED));
}

static int verdict_decode(const redisReply *element, struct verdict *verdict)
{
	if (element->type == REDIS_REPLY_STRING)
		return repeated_decode(element, verdict);
	if (element->type != REDIS_REPLY_INTEGER || element->integer == 0 ||
	    element->integer > RECEIVE_SLOT_MAX)
		return -1;
	verdict->repeated = 0;
	verdict->slot = 0;
	if (element->integer > 0) {
		verdict->answer = ANSWER_OK;
		verdict->slot = (int)element->integer;
		return 0;
	}
	if (!is_refusal(element->integer))
		return -1;
	verdict->answer = answer_from_code((int)-element->integer);
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
	size_t accepted = 0;

	memset(decoded, 0, offsetof(struct call_reply, verdicts));
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
	    state_decode(reply->element[0], &decoded->state) || !numbers_valid(reply, 1, 2))
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
