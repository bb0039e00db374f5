/* The taken slots in one step of a scan of a users' hash. */
#ifndef KEEPER_USER_SLOTS_H
#define KEEPER_USER_SLOTS_H

#include "common/redis/user_records.h"

#include <hiredis/hiredis.h>
#include <stddef.h>

struct user_slot {
	struct user_id user;
	struct user_record record; /* its key is lent by the reply */
};

/* All zero at first. */
struct user_slots {
	struct user_slot *list;
	size_t n, size;
};

/* Replaces the list by the slots of these users and their records. Skips what is malformed. */
void user_slots_read(struct user_slots *slots, const redisReply *pairs);
void user_slots_fini(struct user_slots *slots);

#endif
