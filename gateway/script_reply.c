#include "gateway/script_reply.h"

#include <stdlib.h>
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

/* `SLOT:BATCH:INDEX` of a receive whose key was known. */
static int repeated_decode(const redisReply *element, struct verdict *verdict)
{
	char *end;
	long slot = strtol(element->str, &end, 10), index;

	if (*end != ':' || slot < 1 || slot > RECEIVE_SLOT_MAX)
		return -1;
	if (element->len - (size_t)(end + 1 - element->str) < ULID_LEN + 2 || ulid_parse(&verdict->batch, end + 1, ULID_LEN))
		return -1;
	index = strtol(end + 1 + ULID_LEN + 1, &end, 10);
	if (*end || index < 0 || index > RECEIVE_INDEX_MAX)
		return -1;
	verdict->answer = ANSWER_OK;
	verdict->slot = (int)slot;
	verdict->repeated = 1;
	verdict->index = (int)index;
	return 0;
}

static int verdict_decode(const redisReply *element, struct verdict *verdict)
{
	if (element->type == REDIS_REPLY_STRING)
		return repeated_decode(element, verdict);
	if (element->type != REDIS_REPLY_INTEGER || element->integer == 0 || element->integer > RECEIVE_SLOT_MAX)
		return -1;
	verdict->repeated = 0;
	verdict->slot = 0;
	if (element->integer > 0) {
		verdict->answer = ANSWER_OK;
		verdict->slot = (int)element->integer;
		return 0;
	}
	verdict->answer = element->integer < -100 ? ANSWER_COUNT : answer_from_code((int)-element->integer);
	return verdict->answer == ANSWER_COUNT || verdict->answer == ANSWER_OK ? -1 : 0;
}

int script_reply_decode(const redisReply *reply, size_t requests_n, struct call_reply *decoded)
{
	size_t accepted = 0;

	memset(decoded, 0, offsetof(struct call_reply, verdicts));
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 || state_decode(reply->element[0], &decoded->state))
		return -1;
	decoded->generation = reply->element[1]->integer;
	decoded->seq = reply->element[2]->integer;
	if (decoded->state != CALL_OK)
		return 0;
	if (reply->elements != HEAD_N + requests_n || reply->element[6]->type != REDIS_REPLY_STRING)
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
