/* Taken slots of a coupon, as Redis records them and as PostgreSQL has them. No I/O. */
#ifndef CTL_SLOTS_H
#define CTL_SLOTS_H

#include "common/ulid.h"

#include <stddef.h>
#include <stdint.h>

struct slot {
	int64_t user;
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
 * Adds a user's records, SLOT:BATCH:INDEX:KEY in lines. 0, or -1 when they are malformed: then
 * nothing was added.
 */
int slots_add_records(struct slots *slots, int64_t user, const char *records, size_t len);

/*
 * In the order of user and number; a slot that is there twice with the same receive, as a scan may
 * tell it, once.
 */
void slots_sort(struct slots *slots);
/* The slot of this user and number in sorted slots, or NULL. */
const struct slot *slots_find(const struct slots *slots, const struct slot *wanted);
void slots_fini(struct slots *slots);

/* By user and number. */
int slot_compare(const struct slot *a, const struct slot *b);
int slot_same_receive(const struct slot *a, const struct slot *b);

/* How a user's records have one slot. */
enum slot_found {
	SLOT_SAME,      /* this receive's, with this key */
	SLOT_OTHER_KEY, /* this receive's, with another key */
	SLOT_OTHER,     /* another receive's */
	SLOT_NONE,      /* nobody's */
	SLOT_MALFORMED, /* the records are */
};

/* `key` NULL: any; `*found` is who has the slot instead, for SLOT_OTHER. */
enum slot_found slot_look_up(const struct slot *wanted, const char *key, const char *records,
			     size_t len, struct slot *found);

/*
 * A set of at most `max` slots, of which it keeps prints of 64 bits: what it says it has was added,
 * but for a chance of one in 10^12 with a million; what it says it has not may have been added when
 * it was full.
 */
struct slot_set {
	uint64_t *cells; /* 0: free */
	size_t n, size, max;
};

void slot_set_init(struct slot_set *set, size_t max);
int slot_set_add(struct slot_set *set, const struct slot *slot); /* 1, or 0 when it was full */
int slot_set_has(const struct slot_set *set, const struct slot *slot);
void slot_set_fini(struct slot_set *set);

#endif
