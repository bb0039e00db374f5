#include "keeper/rebuild/users.h"

#include "common/check.h"
#include "common/redis/user_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT 256

/* A slot of one step of the scan. */
struct taken {
	struct user_id user;
	struct user_record record;
};

struct slots {
	struct taken *list;
	size_t n, size;
	struct postgres_array batches;
};

static void slots_add(struct slots *slots, const struct user_id *user,
		      const struct user_record *record)
{
	if (slots->n == slots->size) {
		slots->size = slots->size ? 2 * slots->size : 512;
		slots->list = realloc(slots->list, slots->size * sizeof(*slots->list));
		check(slots->list != NULL);
	}
	slots->list[slots->n++] = (struct taken){ *user, *record };
	postgres_array_add_uuid(&slots->batches, &record->batch);
}

static void slots_read(struct slots *slots, const redisReply *pairs)
{
	slots->n = 0;
	postgres_array_clear(&slots->batches);
	for (size_t i = 0; i + 1 < pairs->elements; i += 2) {
		const char *text = pairs->element[i + 1]->str;
		struct user_record record;
		struct user_id user;

		if (user_id_parse(&user, pairs->element[i]->str, pairs->element[i]->len))
			continue;
		while (user_record_next(&text, &record) == 0)
			if (record.key_len <= RECEIVE_KEY_MAX)
				slots_add(slots, &user, &record);
	}
}

static int slots_write(const struct slots *slots, struct snapshot *snapshot,
		       struct slot_writer *writer)
{
	if (slots->n == 0)
		return 0;
	if (snapshot->tombstone && snapshot_rejected(snapshot, &slots->batches))
		return -1;
	for (size_t i = 0; i < slots->n; i++) {
		const struct user_record *record = &slots->list[i].record;
		char key[RECEIVE_KEY_MAX + 1];

		if (snapshot->tombstone &&
		    snapshot_is_rejected(snapshot, &record->batch, record->index))
			continue;
		memcpy(key, record->key, record->key_len);
		key[record->key_len] = '\0';
		if (slot_writer_add(writer, &slots->list[i].user, record->slot, &record->batch,
				    record->index, key))
			return -1;
	}
	return 0;
}

int rebuild_users(struct keeper_context *context, struct snapshot *snapshot,
		  struct slot_writer *writer)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];
	struct slots slots = { .batches.type = POSTGRES_UUID };
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
	free(slots.list);
	postgres_array_fini(&slots.batches);
	return rc == 0 ? slot_writer_flush(writer) : -1;
}
