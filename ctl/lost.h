/*
 * Accepted receives that PostgreSQL has no outcome for, and couponctl rebuild --release-lost, which
 * gives up those that can no longer arrive. Each is named and recorded as rejected (lost); the
 * keeper then releases its slot in Redis.
 */
#ifndef CTL_LOST_H
#define CTL_LOST_H

#include "common/redis/client.h"
#include "coupon/slot.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"

/* For the coupon on the command line. Ends the process when a queue still has messages. */
void lost_release(struct ctl *ctl, struct db *db, struct redis_client *redis);

/* Keeps the slots whose receives have no outcome, and returns how many there are. */
size_t lost_keep_open(struct db *db, int64_t coupon, struct slot *list, size_t n);
/*
 * Records their receives as lost, each of its generation in `arrays`, with its time of acceptance,
 * and ends `arrays`. Keeps those that had no outcome until then, and returns how many there are.
 */
size_t lost_record(struct db *db, int64_t coupon, struct slot *list, size_t n,
		   struct slot_arrays *arrays);

#endif
