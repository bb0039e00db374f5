#include "keeper/rebuild/users.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/id.h"
#include "common/redis/user_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT 256
#define YOUNG_MS (3600 * 1000)

/* Slots of one scan. */
struct young {
	int64_t user;
	struct user_record record;
};

struct youngs {
	struct young *list;
	size_t n, size;
	struct postgres_array batches;
};

static void youngs_add(struct youngs *youngs, int64_t user, const struct user_record *record)
{
	if (youngs->n == youngs->size) {
		youngs->size = youngs->size ? 2 * youngs->size : 512;
		youngs->list = realloc(youngs->list, youngs->size * sizeof(*youngs->list));
		check(youngs->list != NULL);
	}
	youngs->list[youngs->n++] = (struct young){ user, *record };
	postgres_array_add_uuid(&youngs->batches, &record->batch);
}

static void youngs_read(struct youngs *youngs, const redisReply *pairs)
{
	int64_t after_ms = clock_wall_ms() - YOUNG_MS;

	youngs->n = 0;
	postgres_array_clear(&youngs->batches);
	for (size_t i = 0; i + 1 < pairs->elements; i += 2) {
		const char *text = pairs->element[i + 1]->str;
		struct user_record record;
		int64_t user;

		if (id_parse(pairs->element[i]->str, pairs->element[i]->len, &user))
			continue;
		while (user_record_next(&text, &record) == 0)
			if (record.key_len <= RECEIVE_KEY_MAX &&
			    ulid_time_ms(&record.batch) >= after_ms)
				youngs_add(youngs, user, &record);
	}
}

static int youngs_write(const struct youngs *youngs, struct snapshot *snapshot,
			struct slot_writer *writer)
{
	if (youngs->n == 0)
		return 0;
	if (snapshot_rejected(snapshot, &youngs->batches))
		return -1;
	for (size_t i = 0; i < youngs->n; i++) {
		const struct user_record *record = &youngs->list[i].record;
		char key[RECEIVE_KEY_MAX + 1];

		if (snapshot_is_rejected(snapshot, &record->batch, record->index))
			continue;
		memcpy(key, record->key, record->key_len);
		key[record->key_len] = '\0';
		if (slot_writer_add(writer, youngs->list[i].user, record->slot, &record->batch,
				    record->index, key))
			return -1;
	}
	return 0;
}

int rebuild_users(struct keeper_context *context, struct snapshot *snapshot,
		  struct slot_writer *writer)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];
	struct youngs youngs = { .batches.type = POSTGRES_UUID };
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
		youngs_read(&youngs, reply->element[1]);
		rc = youngs_write(&youngs, snapshot, writer) || keeper_context_goes_on(context) ? -1
												: 0;
		freeReplyObject(reply);
	} while (rc == 0 && strcmp(cursor, "0") != 0);
	free(youngs.list);
	postgres_array_fini(&youngs.batches);
	return rc == 0 ? slot_writer_flush(writer) : -1;
}
