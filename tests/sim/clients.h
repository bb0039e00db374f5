/*
 * The clients: what they request, and what they check of each answer.
 */
#pragma once

#include "tests/sim/rig_gateway.h"

#define INTENTS_MAX 4096
#define USERS 40
#define RETRIES_MAX 8

/* A purchase of a client, over all its attempts. */
struct intent {
	int64_t coupon;
	struct user_id user;
	char key[RECEIVE_KEY_MAX + 1];
	enum request_ack ack;
	int tries;
	int known; /* `receive` was answered */
	struct receive receive;
};

struct client {
	struct intent *intent;
	size_t attempt; /* its number among all requests */
	int sent, answered;
	int64_t submitted_ms;
	struct responder responder;
	struct request request; /* and its text */
};

static struct {
	struct intent intents[INTENTS_MAX];
	size_t intents_n;
	size_t attempts;
	size_t open; /* requests not answered */
	size_t open_of[COUPONS];
	size_t unsent[COUPONS]; /* of them, those in no call yet */
	size_t retries;         /* not yet sent */
	size_t answers[ANSWER_COUNT];
	size_t rows_checked;
	int wiped[COUPONS];
	int64_t wiped_ms; /* the last time; 0: never */
	int stormy;
	int may_crash; /* the gateway */
	int may_purge; /* the broker may lose its messages */
	size_t odd_sent;
} world;

static struct client *client_of(struct request *request)
{
	return (struct client *)(void *)((char *)request - offsetof(struct client, request));
}

/* Clients */

/* One of the users. Their ids are numbers, UUIDs, and texts that a wrong reader would cut. */
static struct user_id user_choose(void)
{
	static const struct {
		const char *before, *after;
	} forms[] = {
		{ "", "" },
		{ "0", "" },
		{ "6f1c2b1e-0d52-4b1f-9c52-00000000000", "" },
		{ "auth0|", ".01ARZ3NDEKTSV4RRFFQ69G5FAV.3" },
		{ "..", "." },
		{ "\",1,\"\"],[\"", "" },
		{ "", "\\" },
		{ "1:01ARZ3NDEKTSV4RRFFQ69G5FAV:", ":" },
		{ "%s%n{", "}';--" },
		{ "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~", "" },
	};
	int number = (int)sim_between(0, USERS - 1);
	char text[USER_ID_SIZE];
	struct user_id user;
	int len = snprintf(text, sizeof(text), "%s%d%s", forms[number % 10].before, number / 10,
			   forms[number % 10].after);

	assert_int_equal(user_id_parse(&user, text, (size_t)len), 0);
	return user;
}

static void client_submit(struct intent *intent)
{
	size_t key_len = strlen(intent->key);
	struct client *client = calloc(1, sizeof(*client) + key_len + 2);

	client->intent = intent;
	client->submitted_ms = sim.now_ms;
	client->attempt = world.attempts++;
	assert_true(world.attempts < ATTEMPTS_MAX);
	client->request.responder = &client->responder;
	client->request.op = OP_ISSUE;
	client->request.coupon = intent->coupon;
	client->request.user = intent->user;
	client->request.ack = intent->ack;
	client->request.key_len = key_len;
	memcpy(client->request.text + 1, intent->key, key_len + 1);
	intent->tries++;
	world.open++;
	world.open_of[intent->coupon - COUPON_FIRST]++;
	world.unsent[intent->coupon - COUPON_FIRST]++;
	admission_submit(gateway.admission, &client->request);
}

static void client_retry(void *context, uint64_t a, uint64_t b)
{
	(void)a;
	(void)b;
	world.retries--;
	client_submit(context);
}

static size_t client_sent(struct request *request)
{
	sim_check(client_of(request)->sent++ == 0, "P7: a request went out in two calls");
	world.unsent[request->coupon - COUPON_FIRST]--;
	return client_of(request)->attempt;
}

/* A refusal without a call comes from the cache, which has its limits. */
static void memory_check(const struct client *client, enum answer answer)
{
	size_t place = (size_t)(client->request.coupon - COUPON_FIRST);

	if (client->sent || answer == ANSWER_BUSY || answer == ANSWER_UNAVAILABLE ||
	    answer == ANSWER_UNKNOWN)
		return;
	sim_check(client->request.key_len == 0, "a remembered answer to a request with a key");
	sim_check(sim.now_ms - gateway.told_ms[place][answer] < MEMORY_MS,
		  "%s was remembered for %lld ms", answer_status(answer),
		  (long long)(sim.now_ms - gateway.told_ms[place][answer]));
	if (answer == ANSWER_NOT_STARTED && redis.coupons[place].present)
		sim_check(redis_now_ms() < redis.coupons[place].begin_ms,
			  "not_started was remembered past the beginning");
}

static void receive_check(struct client *client, const struct result *result)
{
	struct intent *intent = client->intent;
	struct truth *truth = truth_find(&result->receive);

	sim_check(result->receive.coupon == intent->coupon &&
			  user_id_same(&result->receive.user, &intent->user),
		  "the receive of another user");
	sim_check(truth && truth->slot == result->slot,
		  "P5: a receive or slot that Redis never gave");
	sim_check(strcmp(truth->key, intent->key) == 0, "a receive with another key");
	sim_check(*intent->key || !truth->answered,
		  "two requests were answered with the same receive");
	truth->answered = 1;
	if (!*intent->key)
		return;
	sim_check(!intent->known || receive_same(&intent->receive, &result->receive),
		  "P6: a key gave two receives");
	intent->known = 1;
	intent->receive = result->receive;
}

/* Requests that are in admission, and receives that are not confirmed. */
static size_t unconfirmed_or_open(void)
{
	size_t n = world.open - waiters_count(gateway.waiters);

	for (int i = 0; i < COUPONS; i++)
		n += gateway.held[i];
	return n;
}

/* The limits count exactly what is open; of one coupon also what waits for its outcome here. */
static void busy_check(const struct client *client, enum answer answer)
{
	size_t place = (size_t)(client->request.coupon - COUPON_FIRST);

	sim_check(answer != ANSWER_BUSY || unconfirmed_or_open() > UNCONFIRMED_MAX ||
			  world.open_of[place] + gateway.held[place] > UNCONFIRMED_PER_COUPON_MAX,
		  "busy, but only %zu are open", unconfirmed_or_open());
}

/* Any other answer promises that nothing was done, and will not be done later. */
static void denial_check(const struct client *client, enum answer answer)
{
	if (answer == ANSWER_OK || answer == ANSWER_UNKNOWN || answer == ANSWER_REJECTED)
		return;
	denied[client->attempt] = 1;
	for (size_t i = 0; i < truths_n; i++)
		sim_check(truths[i].attempt != client->attempt, "P7: answered %s, but it was done",
			  answer_status(answer));
}

static void outcome_check(const struct result *result)
{
	if (result->answer == ANSWER_OK && result->reached == ACK_ISSUED)
		sim_check(row_issued(&result->receive) != NULL, "answered issued, but it is not");
	if (result->answer == ANSWER_REJECTED)
		sim_check(row_rejected(&result->receive) != NULL,
			  "answered rejected, but it is not");
}

static void client_answered(struct request *request, const struct result *result)
{
	struct client *client = client_of(request);
	struct result seen = *result;

	sim_check(client->answered++ == 0, "answered twice");
	if (gateway.dying)
		seen = (struct result){ .answer = ANSWER_UNKNOWN };
	else
		memory_check(client, seen.answer);
	busy_check(client, seen.answer);
	sim_check(sim.now_ms - client->submitted_ms <= 20000, "P9: answered after %lld ms",
		  (long long)(sim.now_ms - client->submitted_ms));
	sim_check(seen.answer != ANSWER_OK || (seen.slot > 0 && seen.reached >= request->ack),
		  "reached less than was requested");
	if (seen.slot)
		receive_check(client, &seen);
	denial_check(client, seen.answer);
	outcome_check(&seen);
	world.answers[seen.answer]++;
	world.open--;
	world.open_of[request->coupon - COUPON_FIRST]--;
	world.unsent[request->coupon - COUPON_FIRST] -= !client->sent;
	if ((seen.answer == ANSWER_UNKNOWN || seen.answer == ANSWER_BUSY ||
	     seen.answer == ANSWER_UNAVAILABLE) &&
	    *client->intent->key && client->intent->tries < RETRIES_MAX) {
		world.retries++;
		event_in(20, 2000, client_retry, client->intent, 0, 0);
	}
	free(client);
}

static void clients_burst(void *context, uint64_t a, uint64_t b)
{
	(void)context;
	(void)a;
	(void)b;
	if (!world.stormy)
		return;
	for (int64_t n = sim_chance(50) ? sim_between(20, 150) : sim_between(1, 4);
	     n > 0 && world.intents_n < INTENTS_MAX; n--) {
		struct intent *intent = &world.intents[world.intents_n++];

		*intent = (struct intent){ .coupon = COUPON_FIRST + sim_between(0, COUPONS - 1),
					   .user = user_choose() };
		intent->ack = (enum request_ack)sim_between(0, 2);
		if (sim_chance(500))
			snprintf(intent->key, sizeof(intent->key), "key-%zu", world.intents_n);
		client_submit(intent);
		if (*intent->key && sim_chance(100)) /* an impatient client */
			client_submit(intent);
	}
	event_in(1, 60, clients_burst, NULL, 0, 0);
}
