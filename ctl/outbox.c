#include "ctl/outbox.h"

#include "common/check.h"
#include "ctl/store.h"

#include <stdlib.h>

#define COUNT 32 /* entries of a step; each may be 70 KB */

struct scan {
	outbox_fn *step;
	void *context;
};

static void entries_take(void *context, const redisReply *entries)
{
	const struct scan *scan = context;
	struct json_arena *arena = json_arena_new();
	struct message *message = malloc(sizeof(*message));
	const char *error;

	check(message != NULL);
	for (size_t i = 0; i + 1 < entries->elements; i += 2) {
		const redisReply *body = entries->element[i + 1];

		if (message_decode(arena, body->str, body->len, message, &error) == 0)
			scan->step(scan->context, message);
	}
	free(message);
	json_arena_free(arena);
}

void outbox_scan(struct redis_client *redis, int64_t coupon, outbox_fn *step, void *context)
{
	struct scan scan = { step, context };

	store_hash_scan(redis, coupon, COUPON_KEY_OUTBOX, COUNT, entries_take, &scan);
}
