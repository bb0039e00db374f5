#include "ctl/audit/suspect.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

void suspects_add(struct suspects *suspects, const struct slot *slot, enum slot_found how)
{
	if (suspects->n == suspects->size) {
		suspects->size = suspects->size ? suspects->size * 2 : 256;
		suspects->list = realloc(suspects->list, suspects->size * sizeof(*suspects->list));
		check(suspects->list != NULL);
	}
	suspects->list[suspects->n++] = (struct suspect){ .slot = *slot, .how = how };
}

void suspects_fini(struct suspects *suspects)
{
	free(suspects->list);
	memset(suspects, 0, sizeof(*suspects));
}

void suspects_restart(struct suspects *suspects)
{
	for (size_t i = 0; i < suspects->n; i++)
		suspects->list[i].looks = 0;
}

void suspects_drop_gone(struct suspects *suspects)
{
	size_t kept = 0;

	for (size_t i = 0; i < suspects->n; i++)
		if (suspects->list[i].state != SUSPECT_GONE)
			suspects->list[kept++] = suspects->list[i];
	suspects->n = kept;
}

size_t suspects_slots(const struct suspects *suspects, size_t at, size_t most, struct slot *slots)
{
	size_t n = suspects->n - at < most ? suspects->n - at : most;

	for (size_t i = 0; i < n; i++)
		slots[i] = suspects->list[at + i].slot;
	return n;
}

int64_t suspects_count(const struct suspects *suspects, enum suspect_state state)
{
	int64_t n = 0;

	for (size_t i = 0; i < suspects->n; i++)
		n += suspects->list[i].state == state;
	return n;
}

int suspects_have(const struct suspects *suspects, const struct slot *slot)
{
	for (size_t i = 0; i < suspects->n; i++)
		if (slot_compare(&suspects->list[i].slot, slot) == 0)
			return 1;
	return 0;
}
