/*
 * Replies of issue.lua as hiredis' trees, built from the input: an accepted reply is within its
 * bounds, and built again from the decoded form it decodes to the same.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/admit/call.h"

#include <stdio.h>
#include <stdlib.h>

#define DEPTH_MAX 3

/*
 * Each element and each text in memory of its own, so that a sanitizer detects reads beyond it.
 */
static redisReply *reply_new(int type)
{
	redisReply *reply = calloc(1, sizeof(*reply));

	check(reply != NULL);
	reply->type = type;
	return reply;
}

static redisReply *reply_text(int type, const void *text, size_t len)
{
	redisReply *reply = reply_new(type);

	reply->str = malloc(len + 1);
	check(reply->str != NULL);
	memcpy(reply->str, text, len);
	reply->str[len] = '\0';
	reply->len = len;
	return reply;
}

static redisReply *reply_integer(long long number)
{
	redisReply *reply = reply_new(REDIS_REPLY_INTEGER);

	reply->integer = number;
	return reply;
}

static redisReply *reply_array(size_t n)
{
	redisReply *reply = reply_new(REDIS_REPLY_ARRAY);

	reply->elements = n;
	reply->element = calloc(n ? n : 1, sizeof(redisReply *));
	check(reply->element != NULL);
	return reply;
}

static void reply_free(redisReply *reply)
{
	for (size_t i = 0; i < reply->elements; i++)
		reply_free(reply->element[i]);
	free(reply->element);
	free(reply->str);
	free(reply);
}

static long long integer_take(struct bytes *bytes)
{
	uint64_t number = 0;

	for (int i = 0; i < 8; i++)
		number = number << 8 | bytes_u8(bytes);
	return (long long)number;
}

static redisReply *reply_take(struct bytes *bytes, int depth)
{
	static const char *const words[] = { "ok", "missing", "unverified", "behind" };
	uint8_t kind = bytes_u8(bytes), more = bytes_u8(bytes);
	const uint8_t *text;
	redisReply *reply;
	size_t len;

	switch (kind % 8) {
	case 0:
		return reply_integer((int8_t)more);
	case 1:
		return reply_integer(integer_take(bytes));
	case 2:
		return reply_text(REDIS_REPLY_STRING, words[more % 4], strlen(words[more % 4]));
	case 3:
	case 4:
	case 5:
		text = bytes_take(bytes, more, &len);
		return reply_text(kind % 8 == 3   ? REDIS_REPLY_STRING
				  : kind % 8 == 4 ? REDIS_REPLY_STATUS
						  : REDIS_REPLY_ERROR,
				  text, len);
	case 6:
		return reply_new(REDIS_REPLY_NIL);
	}
	reply = reply_array(depth < DEPTH_MAX ? more % 16 : 0);
	for (size_t i = 0; i < reply->elements; i++)
		reply->element[i] = reply_take(bytes, depth + 1);
	return reply;
}

static redisReply *verdict_reply(const struct verdict *verdict)
{
	char text[ULID_SIZE + 32], batch[ULID_SIZE];
	int len;

	if (verdict->answer != ANSWER_OK)
		return reply_integer(-answer_code(verdict->answer));
	if (!verdict->repeated)
		return reply_integer(verdict->slot);
	len = snprintf(text, sizeof(text), "%d:%s:%d", verdict->slot,
		       ulid_format(&verdict->batch, batch), verdict->index);
	return reply_text(REDIS_REPLY_STRING, text, (size_t)len);
}

static redisReply *decoded_reply(const struct call_reply *decoded, size_t requests_n)
{
	static const char *const states[] = { [CALL_OK] = "ok",
					      [CALL_MISSING] = "missing",
					      [CALL_UNVERIFIED] = "unverified",
					      [CALL_BEHIND] = "behind" };
	int ok = decoded->state == CALL_OK;
	redisReply *reply = reply_array(ok ? 7 + requests_n : 3);

	reply->element[0] = reply_text(REDIS_REPLY_STRING, states[decoded->state],
				       strlen(states[decoded->state]));
	reply->element[1] = reply_integer(decoded->generation);
	reply->element[2] = reply_integer(decoded->seq);
	if (!ok)
		return reply;
	reply->element[3] = reply_integer(0);
	reply->element[4] = reply_integer(decoded->now_ms);
	reply->element[5] = reply_integer(decoded->begin_ms);
	reply->element[6] = reply_text(REDIS_REPLY_STRING, decoded->body, decoded->body_len);
	for (size_t i = 0; i < requests_n; i++)
		reply->element[7 + i] = verdict_reply(&decoded->verdicts[i]);
	return reply;
}

static void verdicts_check(const struct call_reply *decoded, const struct call_reply *again,
			   size_t requests_n)
{
	for (size_t i = 0; i < requests_n; i++) {
		const struct verdict *a = &decoded->verdicts[i], *b = &again->verdicts[i];

		check(a->answer == b->answer && a->slot == b->slot && a->repeated == b->repeated);
		check(a->answer == ANSWER_OK ? a->slot >= 1 && a->slot <= RECEIVE_SLOT_MAX
					     : a->slot == 0 && !a->repeated);
		check(!a->repeated || (memcmp(&a->batch, &b->batch, sizeof(a->batch)) == 0 &&
				       a->index == b->index));
		check(!a->repeated || (a->index >= 0 && a->index <= RECEIVE_INDEX_MAX));
	}
}

/* The first byte is how many requests the call had. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct call_reply decoded, again;
	struct bytes bytes = { data, size };
	size_t requests_n = bytes_u8(&bytes);
	redisReply *reply = reply_take(&bytes, 0), *second;

	memset(&decoded, 0xee, sizeof(decoded));
	if (script_reply_decode(reply, requests_n, &decoded) == 0) {
		second = decoded_reply(&decoded, requests_n);
		check(decoded.generation >= 0 && decoded.seq >= 0 && decoded.now_ms >= 0 &&
		      decoded.begin_ms >= 0);
		check(script_reply_decode(second, requests_n, &again) == 0 &&
		      again.state == decoded.state);
		check(again.generation == decoded.generation && again.seq == decoded.seq &&
		      again.body_len == decoded.body_len);
		check(again.now_ms == decoded.now_ms && again.begin_ms == decoded.begin_ms);
		if (decoded.state == CALL_OK)
			verdicts_check(&decoded, &again, requests_n);
		reply_free(second);
	}
	reply_free(reply);
	return 0;
}
