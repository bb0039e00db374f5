#include "keeper/user_slots.h"

#include "common/check.h"

#include <stdlib.h>

static void slot_add(struct user_slots *slots, const struct user_id *user,
		     const struct user_record *record)
{
	if (slots->n == slots->size) {
		slots->size = slots->size ? 2 * slots->size : 512;
		slots->list = realloc(slots->list, slots->size * sizeof(*slots->list));
		check(slots->list != NULL);
	}
	slots->list[slots->n++] = (struct user_slot){ *user, *record };
}

void user_slots_read(struct user_slots *slots, const redisReply *pairs)
{
	slots->n = 0;
	for (size_t i = 0; i + 1 < pairs->elements; i += 2) {
		const char *text = pairs->element[i + 1]->str;
		struct user_record record;
		struct user_id user;

		if (user_id_parse(&user, pairs->element[i]->str, pairs->element[i]->len))
			continue;
		while (user_record_next(&text, &record) == 0)
			slot_add(slots, &user, &record);
	}
}

void user_slots_fini(struct user_slots *slots)
{
	free(slots->list);
	*slots = (struct user_slots){ 0 };
}
