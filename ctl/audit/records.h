/* The users' records of a coupon in Redis, read for some slots at a time. */
#ifndef CTL_AUDIT_RECORDS_H
#define CTL_AUDIT_RECORDS_H

#include "ctl/redis_coupon.h"
#include "ctl/slots.h"

/*
 * How many users are read in one command. Users with many slots have long records, so a higher
 * limit makes this smaller: each command holds Redis for a millisecond or two at most.
 */
size_t records_step(int64_t limit);

/*
 * The records of the users of at most records_step() slots, in their order: an array of strings,
 * nil where a user has none. The caller frees it.
 */
redisReply *records_read(struct redis_client *redis, int64_t coupon, const struct slot *slots,
			 size_t n);

/* How one of these records has a slot. */
enum slot_found records_look_up(const redisReply *records, const struct slot *slot, const char *key,
				struct slot *found);

#endif
