#include "keeper/rebuild/outbox.h"

#include "common/check.h"
#include "common/message/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT 32  /* entries requested at a time; each may be 70 KB */
#define UUIDS_MAX 1024 /* of one scan: HSCAN may return more than COUNT */

/* The batches of one scan that can be parsed. */
struct batches {
	struct message **list;
	size_t n;
	struct postgres_array ids;
};

static void batches_add(struct batches *batches, const struct message *message)
{
	struct message *copy = malloc(sizeof(*copy));

	check(copy != NULL);
	*copy = *message;
	batches->list[batches->n++] = copy;
	postgres_array_add_uuid(&batches->ids, &message->batch);
}

static void batches_fini(struct batches *batches)
{
	for (size_t i = 0; i < batches->n; i++)
		free(batches->list[i]);
	postgres_array_fini(&batches->ids);
	free(batches->list);
	free(batches);
}

/* Entries that cannot be parsed will be dead-lettered; their numbers count as in flight. */
static struct batches *batches_decode(const redisReply *entries, int64_t coupon)
{
	struct batches *batches = calloc(1, sizeof(*batches));
	struct json_arena *arena = json_arena_new();
	struct message *message = malloc(sizeof(*message));
	const char *error;

	check(batches != NULL && message != NULL);
	postgres_array_init(&batches->ids, POSTGRES_UUID);
	batches->list = calloc(entries->elements / 2 + 1, sizeof(struct message *));
	check(batches->list != NULL);
	for (size_t i = 0; i + 1 < entries->elements && batches->n < UUIDS_MAX; i += 2)
		if (message_decode(arena, entries->element[i + 1]->str,
				   entries->element[i + 1]->len, message, &error) == 0 &&
		    message->coupon == coupon)
			batches_add(batches, message);
	free(message);
	json_arena_free(arena);
	return batches;
}

static void high_raise(struct snapshot *snapshot, const struct message *message)
{
	int64_t last = message->seq + (int64_t)message->receives_n - 1;

	for (size_t i = 0; i < snapshot->generations_n; i++)
		if (snapshot->generations[i].number == message->generation &&
		    snapshot->generations[i].seq_seen < last)
			snapshot->generations[i].seq_seen = last;
}

static int message_add(struct snapshot *snapshot, struct slot_writer *writer,
		       const struct message *message)
{
	for (size_t i = 0; i < message->receives_n; i++) {
		const struct message_receive *receive = &message->receives[i];

		if (receive->slot < 1 || receive->slot > RECEIVE_SLOT_MAX ||
		    snapshot_is_rejected(snapshot, &message->batch, (int)i))
			continue;
		if (slot_writer_add(writer, &receive->user, receive->slot, &message->batch, (int)i,
				    receive->tail))
			return -1;
	}
	return 0;
}

static int entries_add(struct snapshot *snapshot, struct slot_writer *writer,
		       const redisReply *entries)
{
	struct batches *batches = batches_decode(entries, snapshot->row.id);
	int rc = batches->n > 0 ? snapshot_rejected(snapshot, &batches->ids) : 0;

	for (size_t i = 0; rc == 0 && i < batches->n; i++) {
		high_raise(snapshot, batches->list[i]);
		rc = message_add(snapshot, writer, batches->list[i]);
	}
	batches_fini(batches);
	return rc;
}

int rebuild_outbox(struct keeper_context *context, struct snapshot *snapshot,
		   struct slot_writer *writer)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];
	int rc = 0;

	coupon_key(snapshot->row.id, COUPON_KEY_OUTBOX, key);
	do {
		redisReply *reply = redis_client_hscan(context->redis, key, cursor, SCAN_COUNT);

		if (!reply)
			return -1;
		rc = entries_add(snapshot, writer, reply->element[1]);
		freeReplyObject(reply);
	} while (rc == 0 && strcmp(cursor, "0") != 0);
	return rc == 0 ? slot_writer_flush(writer) : -1;
}
