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

/* Adds a user's records, SLOT:BATCH:INDEX:KEY in lines. 0, or -1 when they are malformed: then nothing was added. */
int slots_add_records(struct slots *slots, int64_t user, const char *records, size_t len);

/* In the order of user and number; a slot that is there twice with the same receive, as a scan may tell it, once. */
void slots_sort(struct slots *slots);
void slots_fini(struct slots *slots);

/* By user and number. */
int slot_compare(const struct slot *a, const struct slot *b);
int slot_same_receive(const struct slot *a, const struct slot *b);

#endif
