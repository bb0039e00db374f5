/*
 * Messages with outcomes: every outcome that is passed on is valid and is in the body.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/publish/waiters.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_SIZE 16384

/* The outcomes that were passed on, encoded as worker/consume/delivery.c does. */
struct told {
	char text[TEXT_SIZE];
	size_t len;
	size_t n;
};

static void told_add(void *context, const struct ulid *batch, int index, enum outcome_state state,
		     const char *reason)
{
	struct told *told = context;
	char ulid[ULID_SIZE];

	check(index >= 0 && index <= RECEIVE_INDEX_MAX);
	check(state == OUTCOME_ISSUED || state == OUTCOME_REJECTED);
	check((state == OUTCOME_REJECTED) == (reason != NULL));
	check(!reason || strcmp(reason, outcome_reason(reason)) == 0);
	if (told->n++ == 0)
		told->len = (size_t)sprintf(told->text, "{\"v\":1,\"batch\":\"%s\",\"outcomes\":[",
					    ulid_format(batch, ulid));
	if (told->len > TEXT_SIZE - 128)
		return;
	told->len += (size_t)sprintf(told->text + told->len, "%s[%d,\"%s\"", told->n > 1 ? "," : "",
				     index, reason ? "rejected" : "issued");
	told->len += (size_t)sprintf(told->text + told->len, reason ? ",\"%s\"]" : "]", reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct told first, second;
	static struct json_arena *arena;

	if (!arena)
		arena = json_arena_new();
	first.n = second.n = first.len = second.len = 0;
	if (outcome_message_decode(arena, (const char *)data, size, told_add, &first) ||
	    first.n == 0 || first.len > TEXT_SIZE - 128)
		return 0;
	first.len += (size_t)sprintf(first.text + first.len, "]}");
	check(outcome_message_decode(arena, first.text, first.len, told_add, &second) == 0);
	check(second.n == first.n && second.len + 2 == first.len &&
	      memcmp(first.text, second.text, second.len) == 0);
	return 0;
}
