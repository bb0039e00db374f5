#include "ctl/dead/outbox.h"

#include "ctl/store.h"

#include <string.h>

static int is_named(const struct dead_batch *batch)
{
	return batch->coupon && *batch->ulid;
}

void dead_outbox_open(struct dead_outbox *outbox, const struct dead_letter *letter)
{
	for (size_t i = 0; i < letter->batches_n && !outbox->redis; i++)
		if (is_named(&letter->batches[i]))
			outbox->redis = store_redis_open(outbox->ctl);
}

void dead_outbox_close(struct dead_outbox *outbox)
{
	redis_client_free(outbox->redis);
}

/* The reply to a command with the batch's id as its only argument. */
static redisReply *batch_call(struct dead_outbox *outbox, const char *command, enum coupon_key key,
			      const struct dead_batch *batch)
{
	char name[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(batch->coupon, key, name), batch->ulid };
	redisReply *reply = redis_client_call(outbox->redis, 3, argv);

	store_redis_check(outbox->redis, reply != NULL);
	return reply;
}

static int is_same_message(const redisReply *entry, const struct dead_batch *batch)
{
	return entry->type == REDIS_REPLY_STRING && entry->len == batch->body.len &&
	       memcmp(entry->str, batch->body.bytes, entry->len) == 0;
}

static void batch_unmark(struct dead_outbox *outbox, const struct dead_batch *batch)
{
	freeReplyObject(batch_call(outbox, "SREM", COUPON_KEY_DEAD, batch));
}

void dead_outbox_unmark(struct dead_outbox *outbox, const struct dead_letter *letter)
{
	dead_outbox_open(outbox, letter);
	for (size_t i = 0; i < letter->batches_n; i++)
		if (is_named(&letter->batches[i]))
			batch_unmark(outbox, &letter->batches[i]);
}

static void batch_remove(struct dead_outbox *outbox, const struct dead_batch *batch)
{
	redisReply *entry = batch_call(outbox, "HGET", COUPON_KEY_OUTBOX, batch);

	/* Then the mark stays: without it the keeper could settle the receives from their slots. */
	if (is_same_message(entry, batch))
		freeReplyObject(batch_call(outbox, "HDEL", COUPON_KEY_OUTBOX, batch));
	else
		batch_unmark(outbox, batch);
	freeReplyObject(entry);
}

void dead_outbox_remove(struct dead_outbox *outbox, const struct dead_letter *letter)
{
	dead_outbox_open(outbox, letter);
	for (size_t i = 0; i < letter->batches_n; i++)
		if (is_named(&letter->batches[i]))
			batch_remove(outbox, &letter->batches[i]);
}
