/* Taken slots of a coupon, from the records in Redis or the rows in PostgreSQL. No I/O. */
#ifndef CTL_SLOTS_H
#define CTL_SLOTS_H

#include "common/message/receive.h"

#include <stddef.h>
#include <stdint.h>

struct slot {
	struct user_id user;
	struct ulid batch;
	int16_t number; /* 1…100 */
	int16_t index;
};

struct slots {
	struct slot *list;
	size_t n, size;
};

void slots_add(struct slots *slots, const struct slot *slot);

/*
 * Adds a user's records, lines of SLOT:BATCH:INDEX:KEY. 0, or -1 when they are malformed: then none
 * was added.
 */
int slots_add_records(struct slots *slots, const struct user_id *user, const char *records,
		      size_t len);

/* Sorts by user and number, and removes duplicates, which a scan may return. */
void slots_sort(struct slots *slots);
void slots_fini(struct slots *slots);

/* Orders by user and number. */
int slot_compare(const struct slot *a, const struct slot *b);
int slot_same_receive(const struct slot *a, const struct slot *b);

/* The id of the receive that has the slot. Returns `out`. */
char *slot_receive_format(const struct slot *slot, int64_t coupon, char out[RECEIVE_SIZE]);

/* What a user's records have in one slot. */
enum slot_found {
	SLOT_SAME,      /* this receive with this key */
	SLOT_OTHER_KEY, /* this receive with another key */
	SLOT_OTHER,     /* another receive */
	SLOT_NONE,      /* nothing */
	SLOT_MALFORMED, /* the records are malformed */
};

/*
 * `key` with the code, as in a record; NULL: any. For SLOT_OTHER `*found` is the receive that has
 * the slot.
 */
enum slot_found slot_look_up(const struct slot *wanted, const char *key, const char *records,
			     size_t len, struct slot *found);

/*
 * A set of at most `max` slots, kept as hashes of 64 bits. It may report a slot that was not added,
 * with a probability of 10^-12 in a set of a million, and it lacks slots that were added when it
 * was full.
 */
struct slot_set {
	uint64_t *cells; /* 0: free */
	size_t n, size, max;
};

void slot_set_init(struct slot_set *set, size_t max);
int slot_set_add(struct slot_set *set, const struct slot *slot); /* 1, or 0 when it is full */
int slot_set_has(const struct slot_set *set, const struct slot *slot);
void slot_set_fini(struct slot_set *set);

#endif
