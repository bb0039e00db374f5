#include "ctl/slots.h"

#include "common/check.h"
#include "common/hash.h"

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

/* Takes a canonical decimal number of at most three digits and the colon after it. 0, or -1. */
static int number_take(const char **p, const char *end, int least, int most, int16_t *number)
{
	const char *first = *p;
	int value = 0;

	while (*p < end && **p >= '0' && **p <= '9' && *p - first < 3)
		value = value * 10 + (*(*p)++ - '0');
	if (*p == first || *p == end || **p != ':' || (*first == '0' && *p - first > 1) ||
	    value < least || value > most)
		return -1;
	(*p)++;
	*number = (int16_t)value;
	return 0;
}

/* Reads SLOT:BATCH:INDEX:KEY, and a code. `*key` is the start of the key. */
static int record_read(struct slot *slot, const char *p, const char *end, const char **key)
{
	size_t key_len;

	if (number_take(&p, end, 1, RECEIVE_SLOT_MAX, &slot->number))
		return -1;
	if (end - p <= ULID_LEN || ulid_parse(&slot->batch, p, ULID_LEN) || p[ULID_LEN] != ':')
		return -1;
	p += ULID_LEN + 1;
	if (number_take(&p, end, 0, RECEIVE_INDEX_MAX, &slot->index))
		return -1;
	*key = p;
	return receive_tail_parse(p, (size_t)(end - p), &key_len);
}

/* Reads the next record and moves `*p` behind it; NULL: it was the last. */
static int record_next(struct slot *slot, const char **p, const char *end, const char **key,
		       size_t *key_len)
{
	const char *stop = memchr(*p, '\n', (size_t)(end - *p));

	if (record_read(slot, *p, stop ? stop : end, key))
		return -1;
	*key_len = (size_t)((stop ? stop : end) - *key);
	*p = stop ? stop + 1 : NULL;
	return 0;
}

/* The script never takes a slot for two receives. */
static int taken_twice(const struct slots *slots, size_t first)
{
	int16_t number = slots->list[slots->n - 1].number;

	for (size_t i = first; i + 1 < slots->n; i++)
		if (slots->list[i].number == number)
			return 1;
	return 0;
}

int slots_add_records(struct slots *slots, const struct user_id *user, const char *records,
		      size_t len)
{
	const char *p = records, *key;
	size_t n = slots->n, key_len;

	while (p) {
		struct slot slot = { .user = *user };

		if (record_next(&slot, &p, records + len, &key, &key_len)) {
			slots->n = n;
			return -1;
		}
		slots_add(slots, &slot);
		if (taken_twice(slots, n)) {
			slots->n = n;
			return -1;
		}
	}
	return 0;
}

enum slot_found slot_look_up(const struct slot *wanted, const char *key, const char *records,
			     size_t len, struct slot *found)
{
	enum slot_found result = SLOT_NONE;
	const char *p = records, *its_key;
	size_t key_len;

	while (p) {
		struct slot slot = { .user = wanted->user };

		if (record_next(&slot, &p, records + len, &its_key, &key_len))
			return SLOT_MALFORMED;
		if (slot.number != wanted->number)
			continue;
		*found = slot;
		if (!slot_same_receive(&slot, wanted))
			result = SLOT_OTHER;
		else if (key && (strlen(key) != key_len || memcmp(key, its_key, key_len) != 0))
			result = SLOT_OTHER_KEY;
		else
			result = SLOT_SAME;
	}
	return result;
}

int slot_compare(const struct slot *a, const struct slot *b)
{
	int order = user_id_compare(&a->user, &b->user);

	if (order)
		return order;
	return (a->number > b->number) - (a->number < b->number);
}

static int compare(const void *a, const void *b)
{
	return slot_compare(a, b);
}

int slot_same_receive(const struct slot *a, const struct slot *b)
{
	return a->index == b->index &&
	       memcmp(a->batch.bytes, b->batch.bytes, sizeof(a->batch.bytes)) == 0;
}

char *slot_receive_format(const struct slot *slot, int64_t coupon, char out[RECEIVE_SIZE])
{
	const struct receive receive = {
		.coupon = coupon, .user = slot->user, .batch = slot->batch, .index = slot->index
	};

	receive_format(&receive, out);
	return out;
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

static uint64_t print_make(const struct slot *slot)
{
	struct slot known = { 0 }; /* the slot, and nothing else behind its user */
	uint64_t print;

	memcpy(known.user.text, slot->user.text, slot->user.len);
	known.user.len = slot->user.len;
	known.batch = slot->batch;
	known.number = slot->number;
	known.index = slot->index;
	print = hash_keyed(&known, sizeof(known));
	return print ? print : 1;
}

void slot_set_init(struct slot_set *set, size_t max)
{
	*set = (struct slot_set){ .max = max };
}

static void cell_take(struct slot_set *set, uint64_t print)
{
	size_t i = (size_t)print & (set->size - 1);

	while (set->cells[i] && set->cells[i] != print)
		i = (i + 1) & (set->size - 1);
	set->n += set->cells[i] == 0;
	set->cells[i] = print;
}

static void grow(struct slot_set *set)
{
	struct slot_set old = *set;

	set->size = old.size ? old.size * 2 : 1024;
	set->cells = calloc(set->size, sizeof(*set->cells));
	check(set->cells != NULL);
	set->n = 0;
	for (size_t i = 0; i < old.size; i++)
		if (old.cells[i])
			cell_take(set, old.cells[i]);
	free(old.cells);
}

int slot_set_add(struct slot_set *set, const struct slot *slot)
{
	if (set->n >= set->max)
		return 0;
	if (set->n * 3 >= set->size * 2)
		grow(set);
	cell_take(set, print_make(slot));
	return 1;
}

int slot_set_has(const struct slot_set *set, const struct slot *slot)
{
	uint64_t print = print_make(slot);
	size_t i;

	if (set->size == 0)
		return 0;
	for (i = (size_t)print & (set->size - 1); set->cells[i]; i = (i + 1) & (set->size - 1))
		if (set->cells[i] == print)
			return 1;
	return 0;
}

void slot_set_fini(struct slot_set *set)
{
	free(set->cells);
	memset(set, 0, sizeof(*set));
}
