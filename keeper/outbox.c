#include "keeper/outbox.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/message.h"
#include "keeper/metrics.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT 16     /* entries requested at a time; each may be 70 KB */
#define IN_FLIGHT_MAX 128 /* published, not yet confirmed */
#define POLL_MS 50

struct keeper_outbox {
	struct redis_client *redis;
	struct rabbit_publisher *publisher;
	struct json_arena *arena;
	struct message message;
	int64_t resend_after_ms;
	struct entry *confirmed; /* to be removed from the outbox */
	int64_t resent;
	int64_t until_ms;     /* the step's end */
	int64_t oldest_at_ms; /* of the entries that were read; 0: none */
};

/* An entry that was sent. */
struct entry {
	struct entry *next;
	int64_t coupon;
	char batch[];
};

static void entry_done(void *context, void *item, enum confirm_result result)
{
	struct keeper_outbox *outbox = context;
	struct entry *entry = item;

	if (result != CONFIRM_DONE) {
		free(entry); /* it is still in the outbox */
		return;
	}
	entry->next = outbox->confirmed;
	outbox->confirmed = entry;
}

struct keeper_outbox *keeper_outbox_new(const char *amqp_url, struct redis_client *redis,
					int64_t resend_after_ms)
{
	static const struct rabbit_publisher_port port = { .done = entry_done };
	struct keeper_outbox *outbox = calloc(1, sizeof(*outbox));

	check(outbox != NULL);
	outbox->redis = redis;
	outbox->resend_after_ms = resend_after_ms;
	outbox->arena = json_arena_new();
	outbox->publisher = rabbit_publisher_new("keeper", amqp_url, &port, outbox);
	return outbox;
}

static void confirmed_forget(struct keeper_outbox *outbox)
{
	struct entry *entry;

	while ((entry = outbox->confirmed)) {
		outbox->confirmed = entry->next;
		free(entry);
	}
}

void keeper_outbox_free(struct keeper_outbox *outbox)
{
	if (!outbox)
		return;
	rabbit_publisher_free(outbox->publisher);
	confirmed_forget(outbox);
	json_arena_free(outbox->arena);
	free(outbox);
}

struct rabbit_link *keeper_outbox_link(struct keeper_outbox *outbox)
{
	return rabbit_publisher_link(outbox->publisher);
}

/*
 * Removes confirmed entries from the outbox. 0, or -1 when Redis is lost: then they are sent again,
 * which changes no outcome.
 *
 * Not fenced: a confirm is final, and the id of a batch is never reused. A keeper that was
 * suspended may remove the entry after another keeper was elected; that keeper would send it again
 * and then remove it too.
 */
static int confirmed_remove(struct keeper_outbox *outbox)
{
	struct entry *entry;

	while ((entry = outbox->confirmed)) {
		char key[COUPON_KEY_SIZE];
		const char *hdel[] = { "HDEL", coupon_key(entry->coupon, COUPON_KEY_OUTBOX, key),
				       entry->batch };
		redisReply *reply;

		fault_point(FAULT_KEEPER_BEFORE_REMOVE);
		reply = redis_client_call(outbox->redis, 3, hdel);
		if (!reply && !redis_client_is_open(outbox->redis))
			return -1;
		/* A refused removal leaves the entry in the outbox. Other coupons go on. */
		outbox->resent += reply != NULL;
		if (reply)
			freeReplyObject(reply);
		outbox->confirmed = entry->next;
		free(entry);
	}
	return 0;
}

/* Waits until the connection is open, or the step is over. 0, or -1: the lock is lost. */
static int opening_wait(struct keeper_outbox *outbox, struct keeper_lock *lock,
			const atomic_int *stop)
{
	struct rabbit_link *link = rabbit_publisher_link(outbox->publisher);

	rabbit_link_step(link, clock_monotonic_ms());
	while (rabbit_link_opens(link) && !*stop && clock_monotonic_ms() < outbox->until_ms) {
		struct pollfd pollfd = { .fd = rabbit_link_fd(link), .events = POLLIN };

		if (keeper_lock_hold(lock))
			return -1;
		poll(&pollfd, 1, POLL_MS);
		rabbit_link_step(link, clock_monotonic_ms());
	}
	return 0;
}

/*
 * Reads the connection until at most `most` messages are unconfirmed, or the step is over. 0, or
 * -1: the lock is lost.
 */
static int confirms_wait(struct keeper_outbox *outbox, size_t most, struct keeper_lock *lock,
			 const atomic_int *stop)
{
	for (;;) {
		struct pollfd pollfd = { .fd = rabbit_link_fd(
						 rabbit_publisher_link(outbox->publisher)),
					 .events = POLLIN };

		rabbit_link_read(rabbit_publisher_link(outbox->publisher));
		if (confirmed_remove(outbox) || keeper_lock_hold(lock))
			return -1;
		if (rabbit_publisher_open(outbox->publisher) <= most || *stop ||
		    clock_monotonic_ms() >= outbox->until_ms)
			return 0;
		poll(&pollfd, 1, POLL_MS);
	}
}

/*
 * Whether the entry is old enough, or its time is in the future because Redis' clock was set back.
 * An entry that cannot be parsed is sent too: a worker dead-letters it.
 */
static int entry_due(struct keeper_outbox *outbox, const redisReply *body, int64_t now_ms)
{
	const char *error;
	int64_t age_ms;

	if (message_decode(outbox->arena, body->str, body->len, &outbox->message, &error))
		return 1;
	if (outbox->oldest_at_ms == 0 || outbox->message.at_ms < outbox->oldest_at_ms)
		outbox->oldest_at_ms = outbox->message.at_ms;
	age_ms = now_ms - outbox->message.at_ms;
	return age_ms > outbox->resend_after_ms || age_ms < -outbox->resend_after_ms;
}

static void entry_send(struct keeper_outbox *outbox, int64_t coupon, const redisReply *batch,
		       const redisReply *body)
{
	struct entry *entry = calloc(1, sizeof(*entry) + batch->len + 1);
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG,
		.content_type = amqp_cstring_bytes("application/json"),
		.correlation_id = { batch->len, batch->str },
	};

	check(entry != NULL);
	entry->coupon = coupon;
	memcpy(entry->batch, batch->str, batch->len);
	rabbit_publisher_send(outbox->publisher, AMQP_EXCHANGE, AMQP_ROUTING_KEY, &properties,
			      (amqp_bytes_t){ body->len, body->str }, entry);
}

/* Sends the due entries of one scan. 0, or -1. */
static int entries_send(struct keeper_outbox *outbox, int64_t coupon, const redisReply *entries,
			int64_t now_ms, struct keeper_lock *lock, const atomic_int *stop)
{
	for (size_t i = 0; i + 1 < entries->elements; i += 2) {
		const redisReply *batch = entries->element[i], *body = entries->element[i + 1];

		if (batch->len > 255 || !entry_due(outbox, body, now_ms))
			continue;
		if (rabbit_publisher_open(outbox->publisher) >= IN_FLIGHT_MAX &&
		    confirms_wait(outbox, IN_FLIGHT_MAX / 2, lock, stop))
			return -1;
		if (!rabbit_publisher_ready(outbox->publisher) ||
		    rabbit_publisher_open(outbox->publisher) >= IN_FLIGHT_MAX)
			return 0; /* later */
		entry_send(outbox, coupon, batch, body);
	}
	return 0;
}

static int outbox_scan(struct keeper_outbox *outbox, int64_t coupon, int64_t now_ms,
		       struct keeper_lock *lock, const atomic_int *stop)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];
	int rc;

	coupon_key(coupon, COUPON_KEY_OUTBOX, key);
	do {
		redisReply *reply;

		if (keeper_lock_hold(lock))
			return -1;
		reply = redis_client_hscan(outbox->redis, key, cursor, SCAN_COUNT);
		if (!reply)
			return redis_client_is_open(outbox->redis) ? 0 : -1;
		rc = entries_send(outbox, coupon, reply->element[1], now_ms, lock, stop);
		freeReplyObject(reply);
	} while (rc == 0 && strcmp(cursor, "0") != 0 && rabbit_publisher_ready(outbox->publisher) &&
		 !*stop && clock_monotonic_ms() < outbox->until_ms);
	return rc;
}

static int outbox_turn(struct keeper_outbox *outbox, int64_t coupon, struct keeper_lock *lock,
		       const atomic_int *stop)
{
	int64_t now_ms;

	if (opening_wait(outbox, lock, stop))
		return -1;
	/* Messages of an earlier step that are still unconfirmed would be sent again now. */
	if (confirms_wait(outbox, 0, lock, stop))
		return -1;
	if (rabbit_publisher_open(outbox->publisher) > 0 ||
	    !rabbit_publisher_ready(outbox->publisher))
		return 0;
	if (redis_client_time_ms(outbox->redis, &now_ms))
		return -1;
	if (outbox_scan(outbox, coupon, now_ms, lock, stop))
		return -1;
	return confirms_wait(outbox, 0, lock, stop);
}

int keeper_outbox_step(struct keeper_outbox *outbox, int64_t coupon, int64_t until_ms,
		       struct keeper_lock *lock, const atomic_int *stop)
{
	int rc;

	outbox->until_ms = until_ms;
	outbox->resent = 0;
	rc = outbox_turn(outbox, coupon, lock, stop);
	keeper_metrics_add(KEEPER_METRIC_RESENT, outbox->resent);
	if (outbox->resent > 0)
		log_info("outbox_resent", LOG_I("coupon", coupon),
			 LOG_I("messages", outbox->resent));
	return rc;
}

int64_t keeper_outbox_oldest_take(struct keeper_outbox *outbox)
{
	int64_t at_ms = outbox->oldest_at_ms;

	outbox->oldest_at_ms = 0;
	return at_ms;
}
