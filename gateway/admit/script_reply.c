#include "gateway/admit/script_reply.h"

#include <string.h>

#define HEAD_N 7 /* elements before the verdicts */

static int state_decode(const redisReply *element, enum call_state *state)
{
	static const struct {
		const char *name;
		enum call_state state;
	} states[] = {
		{ "ok", CALL_OK },
		{ "missing", CALL_MISSING },
		{ "unverified", CALL_UNVERIFIED },
		{ "behind", CALL_BEHIND },
	};

	if (element->type != REDIS_REPLY_STRING)
		return -1;
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		if (strcmp(element->str, states[i].name) == 0) {
			*state = states[i].state;
			return 0;
		}
	}
	return -1;
}

/*
 * The decimal number at `*text`, in canonical spelling, up to `most`; moves `*text` behind it. -1:
 * there is none.
 */
static int number_take(const char **text, int most)
{
	const char *first = *text;
	int number = 0;

	for (; **text >= '0' && **text <= '9' && number <= most; (*text)++)
		number = number * 10 + (**text - '0');
	return *text == first || number > most || (*first == '0' && *text - first > 1) ? -1
										       : number;
}

/* `SLOT:BATCH:INDEX` of a receive whose key was known. */
static int repeated_decode(const redisReply *element, struct verdict *verdict)
{
	const char *text = element->str, *end = element->str + element->len;

	verdict->answer = ANSWER_OK;
	verdict->repeated = 1;
	verdict->slot = number_take(&text, RECEIVE_SLOT_MAX);
	if (verdict->slot < 1 || *text++ != ':')
		return -1;
	if (end - text < ULID_LEN + 2 || ulid_parse(&verdict->batch, text, ULID_LEN) ||
	    text[ULID_LEN] != ':')
		return -1;
	text += ULID_LEN + 1;
	verdict->index = number_take(&text, RECEIVE_INDEX_MAX);
	return verdict->index < 0 || text != end ? -1 : 0;
}

/* Whether it is minus the code of an answer with which the script refuses. */
static int is_refusal(long long number)
{
	return number == -answer_code(ANSWER_BUSY) ||
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
