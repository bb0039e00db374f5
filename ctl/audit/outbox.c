#include "ctl/audit/pass.h"

#include "common/message.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

#define SCAN_STEP 16 /* entries, each of which may be 40 KB */
#define CURSOR_SIZE 24

/* A scan may tell an entry twice. */
static void entry_bad(struct pass *pass, const redisReply *batch, const char *error)
{
	struct entry_bad entry = { .error = error };

	snprintf(entry.batch, sizeof(entry.batch), "%s", batch->str);
	for (size_t i = 0; i < pass->entries_n; i++)
		if (strcmp(pass->entries[i].batch, entry.batch) == 0)
			return;
	if (!pass->entries)
		pass->entries = calloc(ENTRIES_MAX, sizeof(*pass->entries));
	check(pass->entries != NULL);
	if (pass->entries_n < ENTRIES_MAX)
		pass->entries[pass->entries_n++] = entry;
}

static void entry_settled(struct pass *pass, const struct slot *first)
{
	for (size_t i = 0; i < pass->outbox.n; i++)
		if (slot_same_receive(&pass->outbox.list[i].slot, first))
			return;
	suspects_add(&pass->outbox, first, SLOT_SAME);
}

/* Whether all of a message has its outcomes, and which receive to name it by. */
static int is_settled(struct pass *pass, const struct message *message, struct slot *first)
{
	static struct outcome outcomes[MESSAGE_RECEIVES_MAX];
	static struct slot slots[MESSAGE_RECEIVES_MAX];

	for (size_t i = 0; i < message->receives_n; i++)
		slots[i] = (struct slot){ message->receives[i].user, message->batch,
					  (int16_t)message->receives[i].slot, (int16_t)i };
	audit_outcomes_read(pass->audit->db, pass->coupon, slots, message->receives_n, outcomes);
	for (size_t i = 0; i < message->receives_n; i++)
		if (outcomes[i].issued_ms < 0 && outcomes[i].rejected_ms < 0)
			return 0;
	*first = slots[0];
	return 1;
}

static void entry_take(struct pass *pass, struct json_arena *arena, const redisReply *batch,
		       const redisReply *body)
{
	static struct message message;
	char text[ULID_SIZE];
	struct slot first;
	const char *error;

	if (message_decode(arena, body->str, body->len, &message, &error))
		entry_bad(pass, batch, error);
	else if (strcmp(ulid_format(&message.batch, text), batch->str) != 0)
		entry_bad(pass, batch, "its message is of another batch");
	else if (message.coupon != pass->coupon)
		entry_bad(pass, batch, "its message is of another coupon");
	else if (pass->after.at_ms - message.at_ms > pass->audit->grace_ms &&
		 pass->outbox.n < ENTRIES_MAX && is_settled(pass, &message, &first))
		entry_settled(pass, &first);
}

void pass_outbox_read(struct pass *pass)
{
	char cursor[CURSOR_SIZE] = "0", key[CACHE_KEY_SIZE];
	struct json_arena *arena;

	if (pass->cut.outbox == 0)
		return;
	arena = json_arena_new();
	cache_key(pass->coupon, ":outbox", key);
	do {
		redisReply *reply = cache_scan(pass->audit->cache, key, cursor, SCAN_STEP);

		audit_redis_need(pass->audit, reply != NULL);
		snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
		for (size_t i = 0; i + 1 < reply->element[1]->elements; i += 2)
			entry_take(pass, arena, reply->element[1]->element[i],
				   reply->element[1]->element[i + 1]);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
	json_arena_free(arena);
}
