#include "ctl/dead/outbox.h"

#include "ctl/store.h"

#include <string.h>

static int is_named(const struct dead_letter *letter)
{
	return letter->coupon && *letter->batch;
}

void dead_outbox_open(struct dead_outbox *outbox, const struct dead_letter *letter)
{
	if (is_named(letter) && !outbox->redis)
		outbox->redis = store_redis_open(outbox->ctl);
}

void dead_outbox_close(struct dead_outbox *outbox)
{
	redis_client_free(outbox->redis);
}

/* The reply to a command with the letter's batch as its only argument. */
static redisReply *batch_call(struct dead_outbox *outbox, const char *command, enum coupon_key key,
			      const struct dead_letter *letter)
{
	char name[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(letter->coupon, key, name), letter->batch };
	redisReply *reply = redis_client_call(outbox->redis, 3, argv);

	store_redis_check(outbox->redis, reply != NULL);
	return reply;
}

static int is_same_message(const redisReply *entry, const struct dead_letter *letter)
{
	return entry->type == REDIS_REPLY_STRING && entry->len == letter->raw.body.len &&
	       memcmp(entry->str, letter->raw.body.bytes, entry->len) == 0;
}

void dead_outbox_unmark(struct dead_outbox *outbox, const struct dead_letter *letter)
{
	if (!is_named(letter))
		return;
	dead_outbox_open(outbox, letter);
	freeReplyObject(batch_call(outbox, "SREM", COUPON_KEY_DEAD, letter));
}

void dead_outbox_remove(struct dead_outbox *outbox, const struct dead_letter *letter)
{
	redisReply *entry;

	if (!is_named(letter))
		return;
	dead_outbox_open(outbox, letter);
	entry = batch_call(outbox, "HGET", COUPON_KEY_OUTBOX, letter);
	/* Then the mark stays: without it the keeper could settle the receives from their slots. */
	if (is_same_message(entry, letter))
		freeReplyObject(batch_call(outbox, "HDEL", COUPON_KEY_OUTBOX, letter));
	else
		dead_outbox_unmark(outbox, letter);
	freeReplyObject(entry);
}
