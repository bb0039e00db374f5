#include "keeper/outbox.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/message.h"
#include "common/rabbit/topology.h"
#include "common/postgres/argument.h"
#include "coupon/redis_coupon.h"
#include "embed.h"
#include "keeper/metrics.h"
#include "keeper/resend.h"
#include "coupon/slot.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_COUNT 16  /* requested at a time; each may be 70 KB */
#define USERS_COUNT 256   /* the same */
#define IN_FLIGHT_MAX 128 /* published, not yet confirmed */
#define POLL_MS 50
/* In this time the broker confirms something, or nothing more is published in this round. */
#define CONFIRM_MS 300
#define ASK_MS 100   /* between two questions for the lengths of the queues */
#define TELL_MS 5000 /* the same while nothing is in an outbox: for the metrics */

struct keeper_outbox {
	struct keeper_context *context;
	struct rabbit_publisher *publisher;
	struct resend *resend;
	struct json_arena *arena;
	struct message message;
	int64_t ask_due_ms;
	int stuck;            /* in this round: the broker does not confirm */
	int64_t oldest_at_ms; /* of the entries that were read; 0: none */
};

/*
 * A message that cannot be parsed: a worker dead-letters it, but cannot remove it from the outbox,
 * so the keeper removes it when it is confirmed.
 */
struct unreadable {
	int64_t coupon;
	char batch[];
};

static char readable; /* the item of every other message */

/*
 * What is not removed now, because Redis is lost or refuses, is sent again.
 *
 * Not fenced: a confirm is final, and the id of a batch is never reused. A keeper that was
 * suspended may remove the entry after another keeper was elected; that keeper would send it again
 * and then remove it too.
 */
static void copy_done(void *context, void *item, enum confirm_result result)
{
	struct keeper_outbox *outbox = context;
	struct unreadable *unreadable = item;

	if (result == CONFIRM_DONE)
		metrics_add(KEEPER_METRIC_RESENT, 1);
	if (item == &readable)
		return;
	if (result == CONFIRM_DONE) {
		fault_point(FAULT_KEEPER_BEFORE_REMOVE);
		freeReplyObject(coupon_call(outbox->context->redis, unreadable->coupon, "HDEL",
					    COUPON_KEY_OUTBOX, unreadable->batch, NULL));
	}
	free(unreadable);
}

static void link_opened(void *context)
{
	struct keeper_outbox *outbox = context;

	resend_connected(outbox->resend);
	outbox->ask_due_ms = 0;
}

static void queue_read(void *context, const char *name, uint32_t ready)
{
	struct keeper_outbox *outbox = context;

	for (unsigned i = 0; i < RESEND_QUEUES; i++) {
		if (strcmp(name, watch_queues[i]) != 0)
			continue;
		resend_ready(outbox->resend, (enum resend_queue)i, ready, clock_monotonic_ms());
		metrics_set(KEEPER_METRIC_QUEUES + i, ready);
	}
}

struct keeper_outbox *keeper_outbox_new(const char *amqp_url, struct keeper_context *context,
					int64_t resend_after_ms)
{
	static const struct rabbit_publisher_port port = { .done = copy_done,
							   .opened = link_opened,
							   .queue = queue_read };
	struct keeper_outbox *outbox = checked(calloc(1, sizeof(*outbox)));

	outbox->context = context;
	outbox->resend = resend_new(resend_after_ms);
	outbox->arena = json_arena_new();
	outbox->publisher = rabbit_publisher_new("keeper", amqp_url, &port, outbox);
	return outbox;
}

void keeper_outbox_free(struct keeper_outbox *outbox)
{
	rabbit_publisher_free(outbox->publisher);
	resend_free(outbox->resend);
	json_arena_free(outbox->arena);
	free(outbox);
}

void keeper_outbox_restart(struct keeper_outbox *outbox)
{
	resend_reset(outbox->resend);
}

struct rabbit_link *keeper_outbox_link(struct keeper_outbox *outbox)
{
	return rabbit_publisher_link(outbox->publisher);
}

/*
 * Reads the connection until half of the window is free, or the broker has confirmed nothing for
 * CONFIRM_MS. 0, or -1: the lock or Redis is lost, or the worker stops.
 */
static int window_wait(struct keeper_outbox *outbox)
{
	size_t open = rabbit_publisher_open(outbox->publisher), left = open;
	int64_t until_ms = clock_monotonic_ms() + CONFIRM_MS;

	while (left > IN_FLIGHT_MAX / 2 && clock_monotonic_ms() < until_ms) {
		struct pollfd pollfd = { .fd = rabbit_link_fd(keeper_outbox_link(outbox)),
					 .events = POLLIN };

		if (keeper_context_goes_on(outbox->context))
			return -1;
		poll(&pollfd, 1, POLL_MS);
		rabbit_link_read(keeper_outbox_link(outbox));
		left = rabbit_publisher_open(outbox->publisher);
	}
	outbox->stuck = left == open;
	return redis_client_is_open(outbox->context->redis) ? 0 : -1;
}

/* Whether another message can be published now. */
static int has_room(const struct keeper_outbox *outbox)
{
	return !outbox->stuck && rabbit_publisher_ready(outbox->publisher) &&
	       rabbit_publisher_open(outbox->publisher) < IN_FLIGHT_MAX;
}

/* Publishes those entries of a step of a scan that are due. 0, or -1: the round is over. */
static int entries_send(struct keeper_outbox *outbox, struct resend_pass *pass, int64_t coupon,
			const redisReply *entries, int64_t now_ms)
{
	struct redis_client *redis = outbox->context->redis;
	struct message *message = &outbox->message;
	size_t n = entries->elements / 2;
	char key[COUPON_KEY_SIZE], *dead = checked(calloc(n + 1, 1)); /* the operator's */
	const char *sismember[] = { "SISMEMBER", coupon_key(coupon, COUPON_KEY_DEAD, key), NULL };
	const char *error;
	int rc;

	for (size_t i = 0; i < n; i++) {
		sismember[2] = entries->element[2 * i]->str;
		redis_client_append(redis, 3, sismember);
	}
	for (size_t i = 0; i < n; i++) {
		redisReply *reply = redis_client_next(redis);

		dead[i] = reply && redis_reply_number(reply) != 0;
		freeReplyObject(reply);
	}
	rc = redis_client_is_open(redis) ? 0 : -1;

	for (size_t i = 0; rc == 0 && i < n; i++) {
		const redisReply *batch = entries->element[2 * i],
				 *body = entries->element[2 * i + 1];
		amqp_basic_properties_t properties = {
			._flags = AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
				  AMQP_BASIC_APP_ID_FLAG,
			.content_type = amqp_cstring_bytes("application/json"),
			.correlation_id = { batch->len, batch->str },
			.app_id = amqp_cstring_bytes(outbox->context->installation),
		};
		struct unreadable *unreadable = NULL;

		if (dead[i] || batch->len > 255)
			continue;
		if (message_decode(outbox->arena, body->str, body->len, message, &error)) {
			unreadable = checked(calloc(1, sizeof(*unreadable) + batch->len + 1));
			unreadable->coupon = coupon;
			memcpy(unreadable->batch, batch->str, batch->len);
		} else {
			if (outbox->oldest_at_ms == 0 || message->at_ms < outbox->oldest_at_ms)
				outbox->oldest_at_ms = message->at_ms;
			if (!resend_covers(outbox->resend, pass, message->generation, message->seq,
					   now_ms - message->at_ms))
				continue;
		}
		if (rabbit_publisher_open(outbox->publisher) >= IN_FLIGHT_MAX)
			rc = window_wait(outbox);
		if (rc || !has_room(outbox)) {
			free(unreadable);
			continue;
		}
		rabbit_publisher_send(outbox->publisher, AMQP_EXCHANGE, AMQP_ROUTING_KEY,
				      &properties, (amqp_bytes_t){ body->len, body->str },
				      unreadable ? (void *)unreadable : &readable);
		pass->sent++;
	}
	free(dead);
	return rc;
}

/* Settles the slots in a step of a scan that are not the operator's. 0, or -1. */
static int slots_settle(struct keeper_outbox *outbox, struct resend_pass *pass, int64_t coupon,
			const struct coupon_look *look, const redisReply *users)
{
	struct keeper_context *context = outbox->context;
	struct postgres_argument arguments[SETTLE_ARGS_N];
	struct slots slots = { 0 };
	struct settle_args args;
	PGresult *rows = NULL;
	char *dead;
	int rc;

	slots_read(&slots, users);
	settle_args_init(&args);
	dead = checked(calloc(slots.n + 1, 1)); /* 0 also where Redis refuses to tell */
	coupon_has(context->redis, coupon, COUPON_KEY_DEAD, slots.list, slots.n, dead);
	for (size_t i = 0; i < slots.n; i++) {
		const struct slot *slot = &slots.list[i];
		/*
		 * The number of the receive is not known: the highest one is that of one of them. A
		 * receive with a code gets the lowest: it was accepted before the code was revoked,
		 * if it is by now. The time is that of the batch's id.
		 */
		int64_t seq = slot->tail_len > slot->key_len ? 1 : look->seq;

		if (!dead[i])
			slot_settle(slot, coupon, look->generation, seq, ulid_time_ms(&slot->batch),
				    &args);
	}
	rc = redis_client_is_open(context->redis) ? 0 : -1;

	/* Receives that have an outcome keep it. */
	if (rc == 0 && settle_args_receives(&args) > 0) {
		settle_args_arguments(&args, arguments);
		rows = keeper_database_query(context->database, sql_query_settle, SETTLE_ARGS_N,
					     arguments);
		rc = rows ? 0 : -1;
	}
	if (rows)
		pass->sent += (int64_t)settle_args_receives(&args);
	for (int row = 0; row < PQntuples(rows); row++)
		pass->sent -= strcmp(PQgetvalue(rows, row, 1), "changed") != 0;
	PQclear(rows);
	settle_args_fini(&args);
	slots_fini(&slots);
	free(dead);
	return rc;
}

/* 1 when the pass has ended, 0 when it is to go on, -1: the round is over. */
static int pass_run(struct keeper_outbox *outbox, struct resend_pass *pass, int64_t coupon,
		    const struct coupon_look *look, int64_t until_ms)
{
	struct redis_client *redis = outbox->context->redis;
	int is_slots = pass->kind == RESEND_SLOTS, rc;
	char key[COUPON_KEY_SIZE];
	int64_t now_ms;

	if (redis_client_time_ms(redis, &now_ms))
		return -1;
	coupon_key(coupon, is_slots ? COUPON_KEY_USERS : COUPON_KEY_OUTBOX, key);
	do {
		redisReply *reply;

		if (keeper_context_goes_on(outbox->context))
			return -1;
		reply = redis_client_hscan(redis, key, pass->cursor,
					   is_slots ? USERS_COUNT : ENTRIES_COUNT);
		if (!reply)
			return redis_client_is_open(redis) ? 1 : -1;
		if (is_slots)
			rc = slots_settle(outbox, pass, coupon, look, reply->element[1]);
		else
			rc = entries_send(outbox, pass, coupon, reply->element[1], now_ms);
		freeReplyObject(reply);
		if (rc)
			return keeper_context_failed(outbox->context) ? -1 : 1;
	} while (strcmp(pass->cursor, "0") != 0 && (is_slots || has_room(outbox)) &&
		 clock_monotonic_ms() < until_ms);
	return strcmp(pass->cursor, "0") == 0;
}

static void queues_ask(struct keeper_outbox *outbox)
{
	int64_t now_ms = clock_monotonic_ms();

	if (now_ms < outbox->ask_due_ms)
		return;
	outbox->ask_due_ms = now_ms + ASK_MS;
	for (int i = 0; i < RESEND_QUEUES; i++)
		if (rabbit_link_queue_ask(keeper_outbox_link(outbox), watch_queues[i]))
			return;
}

void keeper_outbox_round(struct keeper_outbox *outbox)
{
	struct rabbit_link *link = keeper_outbox_link(outbox);
	int64_t now_ms = clock_monotonic_ms();

	outbox->stuck = 0;
	rabbit_link_step(link, now_ms);
	rabbit_link_read(link);
	if (rabbit_link_up(link) && now_ms >= outbox->ask_due_ms + TELL_MS)
		queues_ask(outbox);
}

int keeper_outbox_step(struct keeper_outbox *outbox, const struct coupon_row *row,
		       const struct coupon_look *look, int64_t until_ms)
{
	static const char *const why[] = {
		[RESEND_ALL] = "the queue is empty",
		[RESEND_OVERTAKEN] = "later batches are settled",
		[RESEND_SLOTS] = "",
	};
	const struct resend_coupon coupon = { .id = row->id,
					      .generation = row->generation,
					      .seq = look->seq,
					      .seq_seen = row->seq_seen,
					      .settled = row->settled,
					      .outbox_n = look->outbox_n };
	struct keeper_context *context = outbox->context;
	struct rabbit_link *link = keeper_outbox_link(outbox);
	struct resend_pass *pass;
	PGresult *locked;
	int64_t begun_ms;
	int rc = 0;

	/*
	 * Receives in flight can be settled from their slots if they are all of this generation,
	 * which Redis has had from the beginning.
	 */
	if (look->outbox_n == 0 &&
	    (!coupon_is_verified(row, look, context->run_id) || look->placeholder ||
	     look->reserved != 0 || look->seq <= row->settled)) {
		resend_forget(outbox->resend, row->id);
		return 0;
	}
	rabbit_link_step(link, clock_monotonic_ms());
	rabbit_link_read(link);
	if (!redis_client_is_open(context->redis))
		return -1;
	if (!rabbit_link_up(link) || !has_room(outbox))
		return 0;
	queues_ask(outbox);
	pass = resend_look(outbox->resend, &coupon, clock_monotonic_ms());
	if (!pass)
		return 0;

	begun_ms = clock_monotonic_ms();
	if (pass->kind == RESEND_ALL) {
		/*
		 * If another session has locked the coupon, its messages may be in the parking
		 * queue, or held by workers: the pass ends.
		 */
		locked = keeper_database_coupons(context->database, sql_query_coupon_locked,
						 &row->id, 1);
		if (locked)
			rc = PQntuples(locked) > 0;
		else
			rc = keeper_context_failed(context) ? -1 : 1;
		PQclear(locked);
	}
	if (rc == 0)
		rc = pass_run(outbox, pass, row->id, look, until_ms);
	pass->work_ms += clock_monotonic_ms() - begun_ms;
	if (rc <= 0)
		return rc;

	if (pass->kind == RESEND_SLOTS)
		log_warn("slots_settled", LOG_I("coupon", coupon.id),
			 LOG_I("receives", pass->sent));
	else if (pass->sent > 0)
		log_info("outbox_resent", LOG_I("coupon", coupon.id), LOG_I("messages", pass->sent),
			 LOG_S("why", why[pass->kind]));
	resend_pass_end(outbox->resend, &coupon, clock_monotonic_ms());
	return 0;
}

int64_t keeper_outbox_oldest_take(struct keeper_outbox *outbox)
{
	int64_t at_ms = outbox->oldest_at_ms;

	outbox->oldest_at_ms = 0;
	return at_ms;
}
