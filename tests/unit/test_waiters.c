/*
 * Clients that wait for more than "accepted": a confirm, a worker's message, or one look-up at the
 * deadline.
 */
#include "gateway/publish/waiters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIMEOUT_MS 5000
#define CLIENTS_MAX 64

struct client {
	int answers;
	struct result result;
	struct request request; /* and its empty text */
};

static struct {
	struct waiters *waiters;
	int64_t now_ms;
	int lookups;
	struct waiter *waiter; /* of the last look-up, and of the one before it */
	struct waiter *before;
	struct receive looked_up;
	int at_once; /* an outcome_state + 1: each look-up ends within the call */
	struct client *clients[CLIENTS_MAX];
	size_t clients_n;
} rig;

static const struct ulid batch_a = { { 1 } }, batch_b = { { 2 } };

static int64_t port_now_ms(void)
{
	return rig.now_ms;
}

static void port_look_up(void *lookup, const struct receive *receive, struct waiter *waiter)
{
	(void)lookup;
	rig.lookups++;
	rig.before = rig.waiter;
	rig.waiter = waiter;
	rig.looked_up = *receive;
	if (rig.at_once)
		waiters_looked_up(waiter, (enum outcome_state)(rig.at_once - 1), "slot_taken");
}

static void port_answer(struct request *request, const struct result *result)
{
	struct client *client = (struct client *)(void *)((char *)request -
							  offsetof(struct client, request));

	client->answers++;
	client->result = *result;
}

static int setup(void **state)
{
	static const struct waiters_port port = {
		.now_ms = port_now_ms,
		.look_up = port_look_up,
		.answer = port_answer,
	};

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.now_ms = 100000;
	rig.waiters = waiters_new(&port, TIMEOUT_MS);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(waiters_count(rig.waiters), 0);
	waiters_free(rig.waiters);
	for (size_t i = 0; i < rig.clients_n; i++)
		free(rig.clients[i]);
	return 0;
}

/* Users that are alike, and whose receives are: only the batch and the index count. */
static struct user_id user_of(int index)
{
	struct user_id user;
	char text[USER_ID_SIZE];
	int len = snprintf(text, sizeof(text), "42.01ARZ3NDEKTSV4RRFFQ69G5FAV.%d\"\\%%s", index);

	assert_int_equal(user_id_parse(&user, text, (size_t)len), 0);
	return user;
}

static struct client *wait(enum request_ack ack, const struct ulid *batch, int index, int repeated)
{
	struct client *client = calloc(1, sizeof(*client) + 2);
	struct receive receive = { 1001, user_of(index), *batch, index };

	assert_true(rig.clients_n < CLIENTS_MAX);
	rig.clients[rig.clients_n++] = client;
	client->request.ack = ack;
	waiters_add(rig.waiters, &client->request, &receive, 1 + index, repeated);
	return client;
}

/* A worker's reply about one receive; `reason`: it was rejected. */
static void settled(const struct ulid *batch, int index, const char *reason)
{
	static struct reply reply;

	reply.batch = *batch;
	reply.outcomes_n = 1;
	reply.receives[0] = (struct receive_outcome){ index, reason };
	waiters_replied(rig.waiters, &reply);
}

static void answer_expect(const struct client *client, enum answer answer)
{
	struct user_id user;

	assert_int_equal(client->answers, 1);
	assert_int_equal(client->result.answer, answer);
	assert_int_equal(client->result.slot, 1 + client->result.receive.index);
	user = user_of(client->result.receive.index);
	assert_true(user_id_same(&client->result.receive.user, &user));
}

/* ack=queued ends with the confirm, ack=issued does not. */
static void test_confirmed(void **state)
{
	struct client *queued[2] = { wait(ACK_QUEUED, &batch_a, 0, 0),
				     wait(ACK_QUEUED, &batch_a, 1, 0) };
	struct client *issued = wait(ACK_ISSUED, &batch_a, 2, 0),
		      *other = wait(ACK_QUEUED, &batch_b, 0, 0);

	(void)state;
	waiters_confirmed(rig.waiters, &batch_a);
	for (int i = 0; i < 2; i++) {
		answer_expect(queued[i], ANSWER_OK);
		assert_int_equal(queued[i]->result.reached, ACK_QUEUED);
		assert_memory_equal(&queued[i]->result.receive.batch, &batch_a, sizeof(batch_a));
	}
	assert_int_equal(issued->answers, 0);
	assert_int_equal(other->answers, 0);
	assert_int_equal(waiters_count(rig.waiters), 2);
	waiters_confirmed(rig.waiters, &batch_a); /* again, and a batch without waiters */
	settled(&batch_a, 2, NULL);
	waiters_confirmed(rig.waiters, &batch_a);
	waiters_confirmed(rig.waiters, &batch_b);
	answer_expect(issued, ANSWER_OK);
	answer_expect(other, ANSWER_OK);
	assert_int_equal(rig.lookups, 0);
}

static void test_settled(void **state)
{
	static struct reply to_uses = { { { 1 } }, 1, 1, { .uses = { { .use = 0 } } } };
	struct client *a = wait(ACK_ISSUED, &batch_a, 0, 0), *b = wait(ACK_ISSUED, &batch_a, 1, 0);
	struct client *queued = wait(ACK_QUEUED, &batch_a, 2, 0);

	(void)state;
	settled(&batch_a, 7, NULL);
	settled(&batch_b, 0, NULL);
	waiters_replied(rig.waiters, &to_uses);
	assert_int_equal(waiters_count(rig.waiters), 3);
	settled(&batch_a, 1, "slot_taken");
	answer_expect(b, ANSWER_REJECTED);
	assert_string_equal(b->result.reason, "slot_taken");
	settled(&batch_a, 0, NULL);
	answer_expect(a, ANSWER_OK);
	assert_int_equal(a->result.reached, ACK_ISSUED);
	/* A worker may be faster than the confirm. */
	settled(&batch_a, 2, NULL);
	answer_expect(queued, ANSWER_OK);
	assert_int_equal(queued->result.reached, ACK_ISSUED);
	settled(&batch_a, 0, NULL); /* redelivered */
	assert_int_equal(a->answers, 1);
}

/* Without a message: one look-up at the deadline, whose result is final. */
static void deadline_expect(enum request_ack ack, enum outcome_state found, enum answer answer)
{
	struct client *client = wait(ack, &batch_a, 3, 0);
	int lookups = rig.lookups;

	rig.now_ms += TIMEOUT_MS - 1;
	waiters_tick(rig.waiters);
	assert_int_equal(rig.lookups, lookups);
	rig.now_ms += 1;
	waiters_tick(rig.waiters);
	assert_int_equal(rig.lookups, lookups + 1);
	assert_int_equal(rig.looked_up.index, 3);
	waiters_tick(rig.waiters);
	assert_int_equal(rig.lookups, lookups + 1);
	assert_int_equal(client->answers, 0);
	waiters_looked_up(rig.waiter, found, "out_of_stock");
	answer_expect(client, answer);
	if (answer == ANSWER_OK)
		assert_int_equal(client->result.reached, ACK_ISSUED);
	if (answer == ANSWER_REJECTED)
		assert_string_equal(client->result.reason, "out_of_stock");
}

static void test_deadline(void **state)
{
	(void)state;
	deadline_expect(ACK_ISSUED, OUTCOME_UNKNOWN, ANSWER_UNKNOWN);
	deadline_expect(ACK_ISSUED, OUTCOME_ISSUED, ANSWER_OK);
	deadline_expect(ACK_ISSUED, OUTCOME_REJECTED, ANSWER_REJECTED);
	deadline_expect(ACK_QUEUED, OUTCOME_UNKNOWN, ANSWER_UNKNOWN);
	deadline_expect(ACK_QUEUED, OUTCOME_ISSUED, ANSWER_OK);
}

/* The message arrives during the look-up: the later result is ignored. */
static void test_word_overtakes_look_up(void **state)
{
	struct client *issued = wait(ACK_ISSUED, &batch_a, 0, 0),
		      *queued = wait(ACK_QUEUED, &batch_a, 1, 0);

	(void)state;
	rig.now_ms += TIMEOUT_MS;
	waiters_tick(rig.waiters);
	assert_int_equal(rig.lookups, 2);
	settled(&batch_a, 0, NULL);
	waiters_confirmed(rig.waiters, &batch_a);
	answer_expect(issued, ANSWER_OK);
	answer_expect(queued, ANSWER_OK);
	waiters_looked_up(rig.before, OUTCOME_UNKNOWN, NULL);
	waiters_looked_up(rig.waiter, OUTCOME_REJECTED, "slot_taken");
	assert_int_equal(issued->answers + queued->answers, 2);
	waiters_tick(rig.waiters);
	assert_int_equal(rig.lookups, 2);
}

/*
 * The receive of an earlier batch: looked up at once, and again until its deadline, after waits
 * that double, and are shorter again before the deadline.
 */
static void test_repeated_polls(void **state)
{
	static const int64_t waits_ms[] = {
		25, 50, 100, 200, 400, 800, 800, 800, 800, 800, 200, 25
	};
	struct client *client = wait(ACK_ISSUED, &batch_a, 0, 1);
	int lookups = 1;

	(void)state;
	assert_int_equal(rig.lookups, 1);
	for (size_t i = 0; i < sizeof(waits_ms) / sizeof(waits_ms[0]); i++) {
		waiters_looked_up(rig.waiter, OUTCOME_UNKNOWN, NULL);
		assert_int_equal(client->answers, 0);
		rig.now_ms += waits_ms[i] - 1;
		waiters_tick(rig.waiters);
		assert_int_equal(rig.lookups, lookups);
		rig.now_ms += 1;
		waiters_tick(rig.waiters);
		assert_int_equal(rig.lookups, ++lookups);
		waiters_tick(rig.waiters);
		assert_int_equal(rig.lookups, lookups);
	}
	waiters_looked_up(rig.waiter, OUTCOME_UNKNOWN, NULL);
	answer_expect(client, ANSWER_UNKNOWN);
}

/*
 * A message about the batch does not tell how the repeated one stands now: it may be older than the
 * request. It is looked up without a wait, also when a look-up was under way.
 */
static void test_repeated_is_looked_up_by_a_message(void **state)
{
	struct client *fresh = wait(ACK_ISSUED, &batch_a, 0, 0),
		      *repeated = wait(ACK_ISSUED, &batch_a, 0, 1),
		      *other = wait(ACK_ISSUED, &batch_a, 1, 1);
	struct waiter *looking = rig.before;

	(void)state;
	assert_int_equal(rig.lookups, 2);
	waiters_looked_up(rig.waiter, OUTCOME_UNKNOWN, NULL);
	settled(&batch_a, 0, NULL);
	settled(&batch_a, 1, NULL);
	answer_expect(fresh, ANSWER_OK);
	assert_false(fresh->result.is_replayed);
	assert_int_equal(rig.lookups, 3); /* of `other`, now */
	waiters_looked_up(rig.waiter, OUTCOME_REJECTED, "voided");
	answer_expect(other, ANSWER_REJECTED);
	assert_string_equal(other->result.reason, "voided");
	assert_int_equal(repeated->answers, 0);
	waiters_looked_up(looking, OUTCOME_UNKNOWN, NULL);
	assert_int_equal(rig.lookups, 4);
	waiters_looked_up(rig.waiter, OUTCOME_ISSUED, NULL);
	answer_expect(repeated, ANSWER_OK);
}

/* With a known key ack=queued waits for PostgreSQL, too. */
static void test_repeated_is_not_confirmed(void **state)
{
	struct client *queued = wait(ACK_QUEUED, &batch_a, 0, 1);

	(void)state;
	waiters_confirmed(rig.waiters, &batch_a);
	assert_int_equal(queued->answers, 0);
	waiters_looked_up(rig.waiter, OUTCOME_UNKNOWN, NULL);
	waiters_confirmed(rig.waiters, &batch_a);
	assert_int_equal(rig.lookups, 1);
	settled(&batch_a, 0, NULL);
	assert_int_equal(rig.lookups, 2);
	waiters_looked_up(rig.waiter, OUTCOME_ISSUED, NULL);
	answer_expect(queued, ANSWER_OK);
	assert_int_equal(queued->result.reached, ACK_ISSUED);
}

static void test_repeated_ends(void **state)
{
	struct client *issued = wait(ACK_QUEUED, &batch_a, 0, 1), *rejected;

	(void)state;
	waiters_looked_up(rig.waiter, OUTCOME_UNKNOWN, NULL);
	rig.now_ms += WAITERS_POLL_MIN_MS;
	waiters_tick(rig.waiters);
	waiters_looked_up(rig.waiter, OUTCOME_ISSUED, NULL);
	answer_expect(issued, ANSWER_OK);
	assert_int_equal(issued->result.reached, ACK_ISSUED);
	rig.at_once = OUTCOME_REJECTED + 1;
	rejected = wait(ACK_ISSUED, &batch_b, 1, 1);
	answer_expect(rejected, ANSWER_REJECTED);
	assert_string_equal(rejected->result.reason, "slot_taken");
	assert_true(issued->result.is_replayed && rejected->result.is_replayed);
}

/*
 * A look-up that fails within the call, for instance because too many wait, counts as any other.
 */
static void test_look_up_at_once(void **state)
{
	struct client *fresh = wait(ACK_ISSUED, &batch_a, 0, 0), *repeated;

	(void)state;
	rig.at_once = OUTCOME_UNKNOWN + 1;
	repeated = wait(ACK_ISSUED, &batch_a, 0, 1);
	assert_int_equal(repeated->answers, 0);
	rig.now_ms += TIMEOUT_MS;
	waiters_tick(rig.waiters);
	answer_expect(fresh, ANSWER_UNKNOWN);
	answer_expect(repeated, ANSWER_UNKNOWN);
}

/* Many of one batch, ended in any order. */
static void test_many(void **state)
{
	struct client *clients[40];

	(void)state;
	for (int i = 0; i < 40; i++)
		clients[i] = wait(i % 2 ? ACK_QUEUED : ACK_ISSUED, i % 3 ? &batch_a : &batch_b, i,
				  0);
	for (int i = 0; i < 40; i += 4)
		settled(i % 3 ? &batch_a : &batch_b, i, NULL);
	waiters_confirmed(rig.waiters, &batch_a);
	rig.now_ms += TIMEOUT_MS;
	rig.at_once = OUTCOME_ISSUED + 1;
	waiters_tick(rig.waiters);
	for (int i = 0; i < 40; i++)
		answer_expect(clients[i], ANSWER_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_confirmed),
		TEST(test_settled),
		TEST(test_deadline),
		TEST(test_word_overtakes_look_up),
		TEST(test_repeated_polls),
		TEST(test_repeated_ends),
		TEST(test_look_up_at_once),
		TEST(test_many),
		TEST(test_repeated_is_looked_up_by_a_message),
		TEST(test_repeated_is_not_confirmed),
	};

	return cmocka_run_group_tests_name("waiters", tests, NULL, NULL);
}
