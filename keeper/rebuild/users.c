#include "keeper/rebuild/users.h"

#include "coupon/slot.h"

#include <string.h>

#define SCAN_COUNT 256

/* Reads the rejected receives of these batches into the snapshot. 0, or -1. */
static int rejected_read(const struct slots *slots, struct snapshot *snapshot)
{
	struct postgres_array batches = { .type = POSTGRES_UUID };
	int rc;

	for (size_t i = 0; i < slots->n; i++)
		postgres_array_add_uuid(&batches, &slots->list[i].batch);
	rc = snapshot_rejected(snapshot, &batches);
	postgres_array_fini(&batches);
	return rc;
}

static int slots_write(const struct slots *slots, struct snapshot *snapshot,
		       struct slot_writer *writer)
{
	if (slots->n == 0)
		return 0;
	if (snapshot->tombstone && rejected_read(slots, snapshot))
		return -1;
	for (size_t i = 0; i < slots->n; i++) {
		const struct slot *slot = &slots->list[i];
		char tail[RECEIVE_TAIL_MAX + 1];

		if (snapshot->tombstone &&
		    snapshot_is_rejected(snapshot, &slot->batch, slot->index))
			continue;
		memcpy(tail, slot->tail, slot->tail_len);
		tail[slot->tail_len] = '\0';
		if (slot_writer_add(writer, &slot->user, slot->number, &slot->batch, slot->index,
				    tail))
			return -1;
	}
	return 0;
}

int rebuild_users(struct keeper_context *context, struct snapshot *snapshot,
		  struct slot_writer *writer)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];
	struct slots slots = { 0 };
	int rc = 0;

	coupon_key(snapshot->row.id, COUPON_KEY_USERS, key);
	do {
		redisReply *reply = redis_client_hscan(context->redis, key, cursor, SCAN_COUNT);

		if (!reply) {
			rc = redis_client_is_open(context->redis)
				     ? 0
				     : -1; /* a key of another type has no slots */
			break;
		}
		slots_read(&slots, reply->element[1]);
		rc = slots_write(&slots, snapshot, writer) || keeper_context_goes_on(context) ? -1
											      : 0;
		freeReplyObject(reply);
	} while (rc == 0 && strcmp(cursor, "0") != 0 && !slot_writer_is_full(writer));
	slots_fini(&slots);
	return rc == 0 ? slot_writer_flush(writer) : -1;
}
