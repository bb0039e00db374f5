/* Replies of issue.lua in hiredis' form, well-formed and malformed. */
#include "gateway/admit/call.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define ELEMENTS_MAX 16

/*
 * A reply with each element in heap memory of its own, so that a sanitizer detects reads beyond it.
 */
static redisReply *integer(long long number)
{
	redisReply *reply = calloc(1, sizeof(*reply));

	reply->type = REDIS_REPLY_INTEGER;
	reply->integer = number;
	return reply;
}

static redisReply *string(const char *text)
{
	redisReply *reply = calloc(1, sizeof(*reply));

	reply->type = REDIS_REPLY_STRING;
	reply->str = strdup(text);
	reply->len = strlen(text);
	return reply;
}

static redisReply *typed(int type)
{
	redisReply *reply = calloc(1, sizeof(*reply));

	reply->type = type;
	if (type == REDIS_REPLY_STATUS || type == REDIS_REPLY_ERROR)
		reply->str = strdup("ok");
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

static redisReply *array(size_t n, redisReply *const *elements)
{
	redisReply *reply = typed(REDIS_REPLY_ARRAY);

	reply->elements = n;
	reply->element = calloc(n ? n : 1, sizeof(redisReply *));
	for (size_t i = 0; i < n; i++)
		reply->element[i] = elements[i];
	return reply;
}

#define ARRAY(...)                                                            \
	array(sizeof((redisReply *[]){ __VA_ARGS__ }) / sizeof(redisReply *), \
	      (redisReply *[]){ __VA_ARGS__ })
#define OK_HEAD(body)                                                                 \
	string("ok"), integer(3), integer(8122), integer(77), integer(1700000000123), \
		integer(1600000000000), string(body)

static struct call_reply decoded;

static int decode(redisReply *reply, size_t requests_n)
{
	int rc;

	memset(&decoded, 0xee, sizeof(decoded));
	rc = script_reply_decode(reply, requests_n, &decoded);
	if (rc == 0 && decoded.state == CALL_OK && decoded.body_len) /* lent by the reply */
		assert_memory_equal(decoded.body, reply->element[6]->str, decoded.body_len);
	reply_free(reply);
	return rc;
}

static void test_ok(void **state)
{
	struct ulid batch;

	(void)state;
	ulid_parse(&batch, BATCH, ULID_LEN);
	assert_int_equal(decode(ARRAY(OK_HEAD("{body}"), integer(1), integer(-4),
				      string("2:" BATCH ":255"), integer(100), integer(-2),
				      integer(-3), integer(-5), integer(-6),
				      string("100:" BATCH ":0"), integer(-20)),
				10),
			 0);
	assert_int_equal(decoded.state, CALL_OK);
	assert_true(decoded.generation == 3 && decoded.seq == 8122);
	assert_true(decoded.now_ms == 1700000000123 && decoded.begin_ms == 1600000000000);
	assert_int_equal(decoded.body_len, 6);
	assert_int_equal(decoded.verdicts[0].answer, ANSWER_OK);
	assert_int_equal(decoded.verdicts[0].slot, 1);
	assert_int_equal(decoded.verdicts[0].repeated, 0);
	assert_int_equal(decoded.verdicts[1].answer, ANSWER_LIMIT_REACHED);
	assert_int_equal(decoded.verdicts[1].slot, 0);
	assert_int_equal(decoded.verdicts[2].answer, ANSWER_OK);
	assert_int_equal(decoded.verdicts[2].repeated, 1);
	assert_int_equal(decoded.verdicts[2].slot, 2);
	assert_int_equal(decoded.verdicts[2].index, 255);
	assert_memory_equal(&decoded.verdicts[2].batch, &batch, sizeof(batch));
	assert_int_equal(decoded.verdicts[3].slot, 100);
	assert_int_equal(decoded.verdicts[4].answer, ANSWER_OUT_OF_STOCK);
	assert_int_equal(decoded.verdicts[5].answer, ANSWER_ENDED);
	assert_int_equal(decoded.verdicts[6].answer, ANSWER_NOT_STARTED);
	assert_int_equal(decoded.verdicts[7].answer, ANSWER_PAUSED);
	assert_int_equal(decoded.verdicts[8].slot, 100);
	assert_int_equal(decoded.verdicts[9].answer, ANSWER_BUSY);
	assert_int_equal(decoded.verdicts[9].slot, 0);
	assert_int_equal(decode(ARRAY(OK_HEAD(""), integer(-2)), 1), 0);
	assert_int_equal(decoded.body_len, 0);
}

static void test_not_decided(void **state)
{
	(void)state;
	assert_int_equal(decode(ARRAY(string("missing"), integer(0), integer(0)), 5), 0);
	assert_int_equal(decoded.state, CALL_MISSING);
	assert_int_equal(decode(ARRAY(string("unverified"), integer(3), integer(9)), 5), 0);
	assert_int_equal(decoded.state, CALL_UNVERIFIED);
	assert_int_equal(decode(ARRAY(string("behind"), integer(3), integer(9)), 5), 0);
	assert_int_equal(decoded.state, CALL_BEHIND);
	assert_true(decoded.generation == 3 && decoded.seq == 9);
}

static void test_other_forms(void **state)
{
	static const int types[] = { REDIS_REPLY_STRING, REDIS_REPLY_INTEGER, REDIS_REPLY_NIL,
				     REDIS_REPLY_STATUS, REDIS_REPLY_ERROR };

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		assert_int_equal(decode(types[i] == REDIS_REPLY_STRING ? string("ok")
								       : typed(types[i]),
					1),
				 -1);
	assert_int_equal(decode(array(0, NULL), 1), -1);
	assert_int_equal(decode(ARRAY(string("ok")), 1), -1);
	assert_int_equal(decode(ARRAY(string("missing"), integer(0)), 1), -1);
	assert_int_equal(decode(ARRAY(string("fine"), integer(0), integer(0)), 1), -1);
	assert_int_equal(decode(ARRAY(string(""), integer(0), integer(0)), 1), -1);
	assert_int_equal(decode(ARRAY(integer(1), integer(0), integer(0)), 1), -1);
	assert_int_equal(decode(ARRAY(typed(REDIS_REPLY_NIL), integer(0), integer(0)), 1), -1);
	assert_int_equal(decode(ARRAY(string("behind"), string("3"), integer(0)), 1), -1);
	assert_int_equal(decode(ARRAY(string("behind"), integer(3), typed(REDIS_REPLY_NIL)), 1),
			 -1);
	/* As many verdicts as requests. */
	assert_int_equal(decode(ARRAY(OK_HEAD("")), 1), -1);
	assert_int_equal(decode(ARRAY(OK_HEAD(""), integer(-2), integer(-2)), 1), -1);
	assert_int_equal(decode(ARRAY(OK_HEAD(""), integer(-2)), 2), -1);
}

/* One element of the head after another is of another type or out of range. */
static void test_head(void **state)
{
	(void)state;
	for (int i = 1; i <= 6; i++) {
		redisReply *elements[] = { OK_HEAD(""), integer(-2) };

		reply_free(elements[i]);
		elements[i] = i == 6 ? integer(0) : string("5");
		if (decode(array(8, elements), 1) == 0)
			fail_msg("element %d of another type was taken", i);
	}
	for (int i = 1; i <= 5; i++) {
		redisReply *elements[] = { OK_HEAD(""), integer(-2) };

		elements[i]->integer = -1;
		if (decode(array(8, elements), 1) == 0)
			fail_msg("element %d was taken though negative", i);
	}
}

static void test_verdicts(void **state)
{
	static const long long numbers[] = { 0,           101,        -1,       -9,   -19,
					     -21,         -22,        -40,      -100, -101,
					     -4294967298, 4294967297, LLONG_MIN };
	static const char *const texts[] = {
		"",
		"1",
		"1:",
		"1:" BATCH,
		"1:" BATCH ":",
		"0:" BATCH ":0",
		"101:" BATCH ":0",
		"-1:" BATCH ":0",
		"1:" BATCH ":256",
		"1:" BATCH ":-1",
		"1:" BATCH ":0x",
		"1:" BATCH "x0",
		"1:" BATCH ":0:key",
		"x:" BATCH ":0",
		"1:01arz3ndektsv4rrffq69g5fav:0",
		":" BATCH ":0",
		"+1:" BATCH ":0",
		" 1:" BATCH ":0",
		"1:" BATCH ": 0",
		"1:" BATCH ":+0",
		"01:" BATCH ":0",
		"1:" BATCH ":00",
		"1:" BATCH "00",
		"99999999999999999999:" BATCH ":0",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (decode(ARRAY(OK_HEAD(numbers[i] > 0 ? "{}" : ""), integer(numbers[i])), 1) == 0)
			fail_msg("the verdict %lld was taken", numbers[i]);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (decode(ARRAY(OK_HEAD(""), string(texts[i])), 1) == 0)
			fail_msg("the verdict %s was taken", texts[i]);
	assert_int_equal(decode(ARRAY(OK_HEAD(""), typed(REDIS_REPLY_NIL)), 1), -1);
	assert_int_equal(decode(ARRAY(OK_HEAD(""), typed(REDIS_REPLY_STATUS)), 1), -1);
	assert_int_equal(decode(ARRAY(OK_HEAD(""), array(0, NULL)), 1), -1);
}

/* A message when something was accepted, and only then. */
static void test_body(void **state)
{
	(void)state;
	assert_int_equal(decode(ARRAY(OK_HEAD(""), integer(1)), 1), -1);
	assert_int_equal(decode(ARRAY(OK_HEAD("{}"), integer(-2)), 1), -1);
	assert_int_equal(decode(ARRAY(OK_HEAD("{}"), string("1:" BATCH ":0")), 1), -1);
	assert_int_equal(decode(ARRAY(OK_HEAD(""), string("1:" BATCH ":0")), 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ok),          cmocka_unit_test(test_not_decided),
		cmocka_unit_test(test_other_forms), cmocka_unit_test(test_head),
		cmocka_unit_test(test_verdicts),    cmocka_unit_test(test_body),
	};

	return cmocka_run_group_tests_name("script_reply", tests, NULL, NULL);
}
