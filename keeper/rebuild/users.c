#include "keeper/rebuild/users.h"

#include "keeper/user_slots.h"

#include <string.h>

#define SCAN_COUNT 256

/* Reads the rejected receives of these batches into the snapshot. 0, or -1. */
static int rejected_read(const struct user_slots *slots, struct snapshot *snapshot)
{
	struct postgres_array batches = { .type = POSTGRES_UUID };
	int rc;

	for (size_t i = 0; i < slots->n; i++)
		postgres_array_add_uuid(&batches, &slots->list[i].record.batch);
	rc = snapshot_rejected(snapshot, &batches);
	postgres_array_fini(&batches);
	return rc;
}

static int slots_write(const struct user_slots *slots, struct snapshot *snapshot,
		       struct slot_writer *writer)
{
	if (slots->n == 0)
		return 0;
	if (snapshot->tombstone && rejected_read(slots, snapshot))
		return -1;
	for (size_t i = 0; i < slots->n; i++) {
		const struct user_record *record = &slots->list[i].record;
		char tail[RECEIVE_TAIL_MAX + 1];

		if (snapshot->tombstone &&
		    snapshot_is_rejected(snapshot, &record->batch, record->index))
			continue;
		memcpy(tail, record->key, record->tail_len);
		tail[record->tail_len] = '\0';
		if (slot_writer_add(writer, &slots->list[i].user, record->slot, &record->batch,
				    record->index, tail))
			return -1;
	}
	return 0;
}

int rebuild_users(struct keeper_context *context, struct snapshot *snapshot,
		  struct slot_writer *writer)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];
	struct user_slots slots = { 0 };
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
		user_slots_read(&slots, reply->element[1]);
		rc = slots_write(&slots, snapshot, writer) || keeper_context_goes_on(context) ? -1
											      : 0;
		freeReplyObject(reply);
	} while (rc == 0 && strcmp(cursor, "0") != 0 && !slot_writer_is_full(writer));
	user_slots_fini(&slots);
	return rc == 0 ? slot_writer_flush(writer) : -1;
}
