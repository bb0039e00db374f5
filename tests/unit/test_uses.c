/*
 * What orders do with receives, between clients and workers: what goes in one message, who is
 * answered by a reply, and who by the deadline.
 */
#include "gateway/listen/request.h"
#include "gateway/publish/use_requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define TIMEOUT_MS 5000
#define INFLIGHT_MAX 4000 /* of which uses have a quarter */

static struct {
	struct responder responder; /* first */
	int answers[ANSWER_COUNT];
	char line[1024]; /* the last one */
	struct waiters *waiters;
	struct use_requests *uses;
	int64_t now_ms;
	struct batch_list published;
	int batches;
	struct json_arena *arena;
	struct use_message message;
} rig;

static void rig_reply(struct responder *responder, const struct request *request,
		      enum answer answer, const char *line, size_t len)
{
	(void)responder;
	(void)request;
	assert_true(len < sizeof(rig.line));
	memcpy(rig.line, line, len);
	rig.line[len] = '\0';
	rig.answers[answer]++;
}

static int64_t port_now_ms(void)
{
	return rig.now_ms;
}

static int64_t port_wall_ms(void)
{
	return 1700000000123;
}

static void port_publish(struct publisher *publisher, struct batch *batch)
{
	(void)publisher;
	STAILQ_INSERT_TAIL(&rig.published, batch, next);
	rig.batches++;
}

static void port_answer_use(void *uses, struct request *request, const struct use_outcome *outcomes,
			    size_t n)
{
	(void)uses;
	use_requests_answer(rig.uses, request, outcomes, n);
}

static int setup(void **state)
{
	const struct waiters_port waiters_port = { .now_ms = port_now_ms,
						   .answer_use = port_answer_use };
	const struct use_requests_port port = { .now_ms = port_now_ms,
						.wall_ms = port_wall_ms,
						.publish = port_publish };
	const struct config config = { .issued_timeout_ms = TIMEOUT_MS,
				       .inflight_max = INFLIGHT_MAX };

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.responder.reply = rig_reply;
	STAILQ_INIT(&rig.published);
	rig.arena = json_arena_new();
	rig.waiters = waiters_new(&waiters_port, TIMEOUT_MS);
	rig.uses = use_requests_new(&port, &config, rig.waiters);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig.now_ms += TIMEOUT_MS;
	waiters_tick(rig.waiters);
	assert_int_equal(use_requests_waiting(rig.uses), 0);
	use_requests_free(rig.uses);
	waiters_free(rig.waiters);
	batch_list_free(&rig.published);
	json_arena_free(rig.arena);
	return 0;
}

/* A request of so many receives of a user, from this index on; `more` has further members. */
static void submit_of(int user, const char *op, int first, int n, const char *more)
{
	char text[2048], *at = text;
	struct request *request;

	at += sprintf(at, "{\"op\":\"%s\",\"order\":\"o\"%s,\"receives\":[", op, more);
	for (int i = 0; i < n; i++)
		at += sprintf(at, "%s\"1001.%d." BATCH ".%d\"", i > 0 ? "," : "", user, first + i);
	sprintf(at, "]}");
	request = request_parse(rig.arena, text, strlen(text), OP_COUNT, &rig.responder);
	assert_non_null(request);
	request->begun_us = rig.now_ms * 1000;
	use_requests_submit(rig.uses, request);
}

static void submit(const char *op, int first, int n, const char *more)
{
	submit_of(42, op, first, n, more);
}

/* The oldest batch that was published, which is decoded. */
static struct batch *published(void)
{
	struct batch *batch = STAILQ_FIRST(&rig.published);
	const char *error;

	assert_non_null(batch);
	STAILQ_REMOVE_HEAD(&rig.published, next);
	assert_int_equal(use_message_decode(rig.arena, batch->body, batch->body_len, &rig.message,
					    &error),
			 0);
	assert_memory_equal(&rig.message.batch, &batch->ulid, sizeof(batch->ulid));
	assert_int_equal(batch->receives, rig.message.receives_n);
	assert_int_equal(batch->way, BATCH_USES);
	assert_true(batch->wants_outcome);
	return batch;
}

/* A worker's reply to the uses [first, end) of the message: all have this result. */
static void reply(const struct use_message *message, size_t first, size_t end,
		  enum use_result result)
{
	static struct reply reply;
	const struct receive *receive = message->receives;

	reply.batch = message->batch;
	reply.is_to_uses = 1;
	reply.outcomes_n = 0;
	for (size_t use = 0; use < end; use++)
		for (size_t i = 0; i < message->uses[use].receives_n; i++, receive++)
			if (use >= first)
				reply.uses[reply.outcomes_n++] =
					(struct use_outcome){ .use = use,
							      .result = result,
							      .receive = *receive,
							      .until_ms = -1,
							      .amount_off = -1 };
	waiters_replied(rig.waiters, &reply);
}

static void test_what_arrives_together_goes_together(void **state)
{
	struct batch *batch;

	(void)state;
	submit("hold", 0, 1, ",\"ttl_s\":60");
	submit("use", 1, 2, ",\"key\":\"k\",\"amount\":12900,\"currency\":\"EUR\"");
	submit("rollback", 3, 1, ",\"reason\":\"sent back\"");
	submit("release", 4, 1, "");
	use_requests_flush(rig.uses);
	use_requests_flush(rig.uses);
	assert_int_equal(rig.batches, 1);
	batch = published();
	assert_int_equal(rig.message.uses_n, 4);
	assert_int_equal(rig.message.at_ms, 1700000000123);
	assert_int_equal(rig.message.uses[0].action, USE_HOLD);
	assert_int_equal(rig.message.uses[0].ttl_s, 60);
	assert_int_equal(rig.message.uses[1].action, USE_USE);
	assert_int_equal(rig.message.uses[1].ttl_s, 0);
	assert_int_equal(rig.message.uses[1].receives_n, 2);
	assert_int_equal(rig.message.uses[1].amount, 12900);
	assert_string_equal(rig.message.uses[1].key, "k");
	assert_int_equal(rig.message.uses[2].action, USE_ROLLBACK);
	assert_string_equal(rig.message.uses[2].reason, "sent back");
	assert_int_equal(rig.message.uses[3].action, USE_RELEASE);
	assert_int_equal(rig.message.receives[4].index, 4);
	assert_int_equal(use_requests_waiting(rig.uses), 4);
	assert_int_equal(use_requests_unconfirmed(rig.uses), 5);
	use_requests_confirmed(rig.uses, batch);
	assert_int_equal(use_requests_unconfirmed(rig.uses), 0);
	free(batch);
}

/* So that a copy of the message, however late, is known as one. */
static void test_a_request_without_a_key_gets_one_of_its_own(void **state)
{
	char wanted[64], ulid[ULID_SIZE];

	(void)state;
	submit("use", 0, 1, "");
	submit("use", 1, 1, "");
	use_requests_flush(rig.uses);
	free(published());
	for (size_t i = 0; i < 2; i++) {
		snprintf(wanted, sizeof(wanted), "%s.%zu", ulid_format(&rig.message.batch, ulid),
			 i);
		assert_string_equal(rig.message.uses[i].key, wanted);
	}
}

static void test_a_message_has_256_receives_at_most(void **state)
{
	(void)state;
	for (int i = 0; i < 17; i++)
		submit_of(i, "use", 0, 15, "");
	submit("use", 0, 2, "");
	use_requests_flush(rig.uses);
	assert_int_equal(rig.batches, 2);
	free(published());
	assert_int_equal(rig.message.uses_n, 17);
	free(published());
	assert_int_equal(rig.message.uses_n, 1);
}

static void test_answered_by_the_reply(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		submit("use", 2 * i, 2, "");
	use_requests_flush(rig.uses);
	free(published());
	reply(&rig.message, 1, 2, USE_USED);
	assert_int_equal(rig.answers[ANSWER_OK], 1);
	assert_non_null(strstr(rig.line, BATCH ".2"));
	reply(&rig.message, 1, 2, USE_ALREADY_USED); /* another worker's, of a copy */
	assert_int_equal(use_requests_waiting(rig.uses), 2);
	reply(&rig.message, 0, 3, USE_HELD_BY_OTHER);
	assert_int_equal(rig.answers[ANSWER_HELD_BY_OTHER], 2);
	assert_int_equal(use_requests_waiting(rig.uses), 0);
	reply(&rig.message, 0, 3, USE_USED); /* nobody waits any more */
	assert_int_equal(rig.answers[ANSWER_OK], 1);
}

static void test_a_reply_that_lacks_a_receive_answers_nobody(void **state)
{
	struct use_message less;

	(void)state;
	submit("use", 0, 2, "");
	use_requests_flush(rig.uses);
	free(published());
	less = rig.message;
	less.uses[0].receives_n = less.receives_n = 1;
	reply(&less, 0, 1, USE_USED);
	assert_int_equal(use_requests_waiting(rig.uses), 1);
	less.uses_n = 2; /* one that the message does not have */
	less.uses[1] = less.uses[0];
	reply(&less, 1, 2, USE_USED);
	reply(&rig.message, 0, 1, USE_USED);
	assert_int_equal(rig.answers[ANSWER_OK], 1);
}

static void test_deadline(void **state)
{
	(void)state;
	submit("use", 0, 1, "");
	submit("use", 1, 1, "");
	use_requests_flush(rig.uses);
	free(published());
	rig.now_ms = 1000;
	submit("use", 2, 1, "");
	use_requests_flush(rig.uses);
	reply(&rig.message, 0, 1, USE_USED);
	rig.now_ms = TIMEOUT_MS - 1;
	waiters_tick(rig.waiters);
	assert_int_equal(rig.answers[ANSWER_UNKNOWN], 0);
	rig.now_ms = TIMEOUT_MS;
	waiters_tick(rig.waiters);
	assert_int_equal(rig.answers[ANSWER_UNKNOWN], 1);
	assert_int_equal(use_requests_waiting(rig.uses), 1);
	reply(&rig.message, 1, 2, USE_USED); /* too late */
	assert_int_equal(rig.answers[ANSWER_OK], 1);
	free(published());
	reply(&rig.message, 0, 1, USE_USED);
	assert_int_equal(rig.answers[ANSWER_OK], 2);
}

/* It is refused before a worker is asked, and told nothing. */
static void test_a_receive_of_another_user(void **state)
{
	(void)state;
	submit("use", 0, 2, ",\"user\":\"43\"");
	assert_int_equal(rig.answers[ANSWER_NOT_FOUND], 1);
	submit("use", 0, 2, ",\"user\":\"42\"");
	assert_int_equal(use_requests_waiting(rig.uses), 1);
	use_requests_flush(rig.uses);
	free(published());
}

static void test_busy(void **state)
{
	struct batch *batch;

	(void)state;
	for (int i = 0; i < INFLIGHT_MAX / 4; i++)
		submit_of(i, "use", 0, 1, "");
	assert_int_equal(rig.answers[ANSWER_BUSY], 0);
	submit("use", 0, 1, "");
	assert_int_equal(rig.answers[ANSWER_BUSY], 1);
	use_requests_flush(rig.uses);
	rig.now_ms = TIMEOUT_MS;
	waiters_tick(rig.waiters);
	assert_int_equal(use_requests_waiting(rig.uses), 0);
	submit("use", 0, 1, ""); /* the messages are still in memory */
	assert_int_equal(rig.answers[ANSWER_BUSY], 2);
	batch = published();
	use_requests_confirmed(rig.uses, batch);
	free(batch);
	submit("use", 0, 1, "");
	assert_int_equal(rig.answers[ANSWER_BUSY], 2);
	use_requests_flush(rig.uses);
}

/* Operations on one receive wait for each other and block others in the same transaction. */
static void test_16_operations_of_one_user_and_coupon_are_under_way(void **state)
{
	struct use_message first;

	(void)state;
	for (int i = 0; i < 8; i++) {
		submit("hold", 0, 16, "");
		submit("use", i, 1, "");
	}
	submit("release", 1, 1, "");
	submit("rollback", 2, 1, "");
	submit("rollback", 3, 1, "");
	submit_of(43, "use", 0, 1, "");
	use_requests_flush(rig.uses);
	assert_int_equal(rig.batches, 1);
	free(published());
	first = rig.message;
	assert_int_equal(first.uses_n, 17);
	assert_int_equal(use_requests_waiting(rig.uses), 20);
	reply(&first, 0, 2, USE_HELD);
	use_requests_flush(rig.uses);
	free(published());
	assert_int_equal(rig.message.uses_n, 2);
	assert_int_equal(rig.message.uses[0].action, USE_RELEASE);
	assert_int_equal(rig.message.uses[1].action, USE_ROLLBACK);
	assert_int_equal(use_requests_waiting(rig.uses), 18);
}

static void test_what_has_waited_for_others_for_too_long_is_not_begun(void **state)
{
	(void)state;
	for (int i = 0; i < 18; i++) {
		rig.now_ms = i < 17 ? 0 : 1;
		submit("use", 0, 1, "");
	}
	use_requests_flush(rig.uses);
	free(published());
	rig.now_ms = TIMEOUT_MS;
	reply(&rig.message, 0, 1, USE_USED);
	assert_int_equal(rig.answers[ANSWER_BUSY], 1);
	use_requests_flush(rig.uses);
	free(published());
	assert_int_equal(rig.message.uses_n, 1);
	assert_int_equal(use_requests_waiting(rig.uses), 16);
}

/* So many uses of two receives are submitted and answered, and 100 ms pass. */
static void load_pass(int n)
{
	while (n-- > 0)
		submit_of(n, "use", 0, 2, "");
	use_requests_flush(rig.uses);
	while (!STAILQ_EMPTY(&rig.published)) {
		struct batch *batch = published();

		use_requests_confirmed(rig.uses, batch);
		reply(&rig.message, 0, rig.message.uses_n, USE_USED);
		free(batch);
	}
	rig.now_ms += 100;
}

static void test_many_in_100_ms_are_full_while_one_waits(void **state)
{
	(void)state;
	load_pass(500);
	assert_false(use_requests_are_full(rig.uses));
	submit("use", 0, 1, "");
	assert_true(use_requests_are_full(rig.uses));
	use_requests_flush(rig.uses);
	free(published());
	rig.now_ms += 99;
	assert_true(use_requests_are_full(rig.uses));
	rig.now_ms += 1;
	assert_false(use_requests_are_full(rig.uses));
	load_pass(499);
	assert_false(use_requests_are_full(rig.uses));
	load_pass(500);
	assert_true(use_requests_are_full(rig.uses));
	load_pass(500);
	rig.now_ms += 100;
	assert_false(use_requests_are_full(rig.uses));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_arrives_together_goes_together),
		TEST(test_a_request_without_a_key_gets_one_of_its_own),
		TEST(test_a_message_has_256_receives_at_most),
		TEST(test_answered_by_the_reply),
		TEST(test_a_reply_that_lacks_a_receive_answers_nobody),
		TEST(test_deadline),
		TEST(test_a_receive_of_another_user),
		TEST(test_busy),
		TEST(test_16_operations_of_one_user_and_coupon_are_under_way),
		TEST(test_what_has_waited_for_others_for_too_long_is_not_begun),
		TEST(test_many_in_100_ms_are_full_while_one_waits),
	};

	return cmocka_run_group_tests_name("uses", tests, NULL, NULL);
}
