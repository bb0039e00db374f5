/*
 * Redis as couponmq uses it: issue.lua's rules on coupons with their users and outbox, and a record
 * of what really happened.
 */
#pragma once

#include "coupon/copies.h"
#include "gateway/admit/admission.h"
#include "tests/sim/sim.h"

#define COUPONS 5
#define COUPON_FIRST 1001
#define RECORDS_MAX 1024
#define OUTBOX_MAX 1024
#define TRUTH_MAX 4096
#define ATTEMPTS_MAX (1 << 20)
#define REDIS_EPOCH_MS 1700000000000 /* Redis' clock at virtual time 0 */

enum coupon_status { STATUS_OPEN, STATUS_PAUSED, STATUS_CLOSED };

/* One receive that Redis accepted, even if it is lost everywhere. */
struct truth {
	struct receive receive;
	int slot;
	char key[RECEIVE_KEY_MAX + 1];
	int64_t seq;
	int answered; /* a client got this answer */
	int held;     /* the message has reached a gateway */
	size_t attempt;
};

struct outbox_entry {
	struct ulid batch;
	char *body;
	size_t len;
	int64_t at_ms;
};

struct redis_coupon {
	int present, placeholder;
	enum coupon_status status;
	int64_t total, stock, begin_ms, end_ms;
	int limit;
	int64_t generation, seq;
	uint64_t run_id;
	size_t records[RECORDS_MAX]; /* taken slots, as places in `truths` */
	size_t records_n;
	struct outbox_entry outbox[OUTBOX_MAX];
	size_t outbox_n;
};

static struct {
	uint64_t run_id;
	int up;
	struct redis_coupon coupons[COUPONS];
} redis;

static struct truth truths[TRUTH_MAX];
static size_t truths_n;
static unsigned char denied[ATTEMPTS_MAX]; /* attempts that were answered that nothing was done */

/*
 * The arguments of one script call; keys of requests are copied, because the gateway may have died
 * when it runs.
 */
struct redis_call {
	struct call *call; /* NULL: no client waits for it any more */
	uint64_t connection;
	uint64_t run_id;
	int64_t coupon;
	struct ulid batch;
	int64_t seen_generation, seen_seq;
	size_t unsettled_max; /* 0: no bound */
	size_t n;
	struct {
		struct user_id user;
		size_t attempt; /* its number among all requests */
		char key[RECEIVE_KEY_MAX + 1];
	} requests[MESSAGE_RECEIVES_MAX];
	struct call_reply reply;
	char *body;
	struct redis_call *older, *newer; /* in flight */
};

static int64_t redis_now_ms(void)
{
	return REDIS_EPOCH_MS + sim.now_ms;
}

static struct redis_coupon *redis_coupon(int64_t id)
{
	return id >= COUPON_FIRST && id < COUPON_FIRST + COUPONS ? &redis.coupons[id - COUPON_FIRST]
								 : NULL;
}

static int ulid_same(const struct ulid *a, const struct ulid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static struct truth *truth_find(const struct receive *receive)
{
	for (size_t i = truths_n; i-- > 0;) {
		struct truth *truth = &truths[i];

		if (user_id_same(&truth->receive.user, &receive->user) &&
		    truth->receive.coupon == receive->coupon &&
		    truth->receive.index == receive->index &&
		    ulid_same(&truth->receive.batch, &receive->batch))
			return truth;
	}
	return NULL;
}

static void outbox_remove(struct redis_coupon *coupon, const struct ulid *batch)
{
	for (size_t i = 0; i < coupon->outbox_n; i++) {
		if (ulid_same(&coupon->outbox[i].batch, batch)) {
			free(coupon->outbox[i].body);
			coupon->outbox[i] = coupon->outbox[--coupon->outbox_n];
			return;
		}
	}
}

/* The reason why the coupon refuses every user now, or ANSWER_OK. */
static enum answer coupon_closed(const struct redis_coupon *coupon)
{
	if (coupon->status == STATUS_PAUSED)
		return ANSWER_PAUSED;
	if (coupon->status == STATUS_CLOSED)
		return ANSWER_ENDED;
	if (redis_now_ms() < coupon->begin_ms)
		return ANSWER_NOT_STARTED;
	if (coupon->end_ms && redis_now_ms() >= coupon->end_ms)
		return ANSWER_ENDED;
	return coupon->stock == 0 ? ANSWER_OUT_OF_STOCK : ANSWER_OK;
}

/* The user's taken slots as bits, and the record that has the key, or NULL. */
static unsigned user_slots(const struct redis_coupon *coupon, const struct user_id *user,
			   const char *key, struct truth **known)
{
	unsigned taken = 0;

	*known = NULL;
	for (size_t i = 0; i < coupon->records_n; i++) {
		struct truth *truth = &truths[coupon->records[i]];

		if (!user_id_same(&truth->receive.user, user))
			continue;
		taken |= 1u << truth->slot;
		if (*key && strcmp(truth->key, key) == 0)
			*known = truth;
	}
	return taken;
}

static void verdict_make(struct redis_call *call, struct redis_coupon *coupon, size_t i,
			 int *accepted)
{
	struct verdict *verdict = &call->reply.verdicts[i];
	struct truth *known;
	unsigned taken = user_slots(coupon, &call->requests[i].user, call->requests[i].key, &known);
	int slot = 1;

	verdict->answer = ANSWER_OK;
	if (known) {
		verdict->repeated = 1;
		verdict->slot = known->slot;
		verdict->batch = known->receive.batch;
		verdict->index = known->receive.index;
		return;
	}
	verdict->answer = coupon_closed(coupon);
	if (verdict->answer == ANSWER_OK && __builtin_popcount(taken) >= coupon->limit)
		verdict->answer = ANSWER_LIMIT_REACHED;
	if (verdict->answer == ANSWER_OK && call->unsettled_max &&
	    coupon->outbox_n >= call->unsettled_max)
		verdict->answer = ANSWER_BUSY;
	if (verdict->answer != ANSWER_OK)
		return;
	while (taken & 1u << slot)
		slot++;
	verdict->slot = slot;
	assert_true(truths_n < TRUTH_MAX && coupon->records_n < RECORDS_MAX);
	known = &truths[truths_n];
	*known = (struct truth){ { call->coupon, call->requests[i].user, call->batch,
				   (*accepted)++ },
				 slot,
				 "",
				 ++coupon->seq,
				 0,
				 0,
				 call->requests[i].attempt };
	sim_check(!denied[known->attempt],
		  "P7: a request was answered that nothing was done, and then it was done");
	strcpy(known->key, call->requests[i].key);
	coupon->records[coupon->records_n++] = truths_n++;
	coupon->stock--;
}

/* As in a JSON string. */
static const char *escaped(const char *text, char *out)
{
	char *at = out;

	for (const char *p = text; *p; p++) {
		if (*p == '"' || *p == '\\')
			*at++ = '\\';
		*at++ = *p;
	}
	*at = '\0';
	return out;
}

static char *body_make(const struct redis_call *call, const struct redis_coupon *coupon,
		       int accepted, size_t *len)
{
	char *body = malloc(256 + (size_t)accepted * 320), ulid[ULID_SIZE];
	char user[2 * USER_ID_SIZE], key[2 * RECEIVE_KEY_MAX + 1];
	const struct truth *first = &truths[truths_n - (size_t)accepted];
	int n = sprintf(body,
			"{\"v\":1,\"batch\":\"%s\",\"coupon\":\"%lld\",\"generation\":%lld,\"seq\":"
			"%lld,\"at\":%lld,\"receives\":[",
			ulid_format(&call->batch, ulid), (long long)call->coupon,
			(long long)coupon->generation, (long long)first->seq,
			(long long)redis_now_ms());

	for (int i = 0; i < accepted; i++)
		n += sprintf(body + n, "%s[\"%s\",%d,\"%s\"]", i ? "," : "",
			     escaped(first[i].receive.user.text, user), first[i].slot,
			     escaped(first[i].key, key));
	n += sprintf(body + n, "]}");
	*len = (size_t)n;
	return body;
}

/* Runs the script; `reply` and `body` of the call hold its result. */
static void redis_issue(struct redis_call *call)
{
	struct redis_coupon *coupon = redis_coupon(call->coupon);
	struct call_reply *reply = &call->reply;
	int accepted = 0;

	memset(reply, 0, sizeof(*reply));
	reply->state = CALL_MISSING;
	reply->body = "";
	if (!coupon || !coupon->present)
		return;
	reply->generation = coupon->generation;
	reply->seq = coupon->seq;
	reply->state = CALL_UNVERIFIED;
	if (coupon->run_id != call->run_id)
		return;
	reply->state = CALL_BEHIND;
	if (coupon->generation < call->seen_generation ||
	    (coupon->generation == call->seen_generation && coupon->seq < call->seen_seq))
		return;
	reply->state = CALL_OK;
	reply->now_ms = redis_now_ms();
	reply->begin_ms = coupon->begin_ms;
	for (size_t i = 0; i < call->n; i++)
		verdict_make(call, coupon, i, &accepted);
	reply->seq = coupon->seq;
	if (accepted == 0)
		return;
	call->body = body_make(call, coupon, accepted, &reply->body_len);
	reply->body = call->body;
	assert_true(coupon->outbox_n < OUTBOX_MAX);
	for (size_t i = 0; i < coupon->outbox_n; i++)
		sim_check(!ulid_same(&coupon->outbox[i].batch, &call->batch),
			  "P7: a call ran twice");
	coupon->outbox[coupon->outbox_n++] =
		(struct outbox_entry){ call->batch, bytes_copy(call->body, reply->body_len),
				       reply->body_len, redis_now_ms() };
}

/* restore.lua; 0, or -1: Redis does not have the coupon. */
static int redis_restore(int64_t id, const struct copy *message)
{
	struct redis_coupon *coupon = redis_coupon(id);

	if (!coupon || !coupon->present)
		return -1;
	if (!coupon->placeholder && coupon->generation == message->generation &&
	    coupon->seq >= message->seq)
		return 0;
	for (size_t i = 0; i < coupon->outbox_n; i++)
		if (ulid_same(&coupon->outbox[i].batch, &message->batch))
			return 0;
	assert_true(coupon->outbox_n < OUTBOX_MAX);
	coupon->outbox[coupon->outbox_n++] =
		(struct outbox_entry){ message->batch, bytes_copy(message->body, message->body_len),
				       message->body_len, redis_now_ms() };
	return 0;
}

static void redis_wipe(struct redis_coupon *coupon)
{
	while (coupon->outbox_n > 0)
		free(coupon->outbox[--coupon->outbox_n].body);
	memset(coupon, 0, sizeof(*coupon));
}
