#include "ctl/slots.h"

#include "common/check.h"
#include "common/receive.h"

#include <stdlib.h>
#include <string.h>

void slots_add(struct slots *slots, const struct slot *slot)
{
	if (slots->n == slots->size) {
		slots->size = slots->size ? slots->size * 2 : 1024;
		slots->list = realloc(slots->list, slots->size * sizeof(*slots->list));
		check(slots->list != NULL);
	}
	slots->list[slots->n++] = *slot;
}

/* A number of one to three digits in canonical decimal, up to the colon behind it; moves `*p` behind that. */
static int number_take(const char **p, const char *end, int least, int most, int16_t *number)
{
	const char *first = *p;
	int value = 0;

	while (*p < end && **p >= '0' && **p <= '9' && *p - first < 3)
		value = value * 10 + (*(*p)++ - '0');
	if (*p == first || *p == end || **p != ':' || (*first == '0' && *p - first > 1) || value < least || value > most)
		return -1;
	(*p)++;
	*number = (int16_t)value;
	return 0;
}

/* SLOT:BATCH:INDEX:KEY */
static int record_read(struct slot *slot, const char *p, const char *end)
{
	if (number_take(&p, end, 1, RECEIVE_SLOT_MAX, &slot->number))
		return -1;
	if (end - p <= ULID_LEN || ulid_parse(&slot->batch, p, ULID_LEN) || p[ULID_LEN] != ':')
		return -1;
	p += ULID_LEN + 1;
	if (number_take(&p, end, 0, RECEIVE_INDEX_MAX, &slot->index))
		return -1;
	return p == end || receive_key_valid(p, (size_t)(end - p)) ? 0 : -1;
}

int slots_add_records(struct slots *slots, int64_t user, const char *records, size_t len)
{
	const char *p = records, *end = records + len;
	size_t n = slots->n;

	for (;;) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		struct slot slot = { .user = user };

		if (record_read(&slot, p, stop ? stop : end)) {
			slots->n = n;
			return -1;
		}
		slots_add(slots, &slot);
		if (!stop)
			return 0;
		p = stop + 1;
	}
}

int slot_compare(const struct slot *a, const struct slot *b)
{
	if (a->user != b->user)
		return a->user < b->user ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

static int compare(const void *a, const void *b)
{
	return slot_compare(a, b);
}

int slot_same_receive(const struct slot *a, const struct slot *b)
{
	return a->index == b->index && memcmp(a->batch.bytes, b->batch.bytes, sizeof(a->batch.bytes)) == 0;
}

void slots_sort(struct slots *slots)
{
	size_t kept = 0;

	if (slots->n > 1)
		qsort(slots->list, slots->n, sizeof(*slots->list), compare);
	for (size_t i = 0; i < slots->n; i++) {
		struct slot *slot = &slots->list[i];

		if (kept > 0 && slot_compare(&slots->list[kept - 1], slot) == 0 &&
		    slot_same_receive(&slots->list[kept - 1], slot))
			continue;
		slots->list[kept++] = *slot;
	}
	slots->n = kept;
}

void slots_fini(struct slots *slots)
{
	free(slots->list);
	memset(slots, 0, sizeof(*slots));
}
