/*
 * Accepted receives that PostgreSQL has no outcome for. Those that can no longer arrive are
 * recorded as rejected (lost); the keeper then releases their slots in Redis.
 */
#pragma once

#include "coupon/slot.h"
#include "ctl/postgres.h"

/* Keeps the slots whose receives have no outcome, and returns how many there are. */
size_t lost_keep_open(struct db *db, int64_t coupon, struct slot *list, size_t n);
/*
 * Records their receives as lost, each of its generation in `arrays`, with its time of acceptance,
 * and ends `arrays`. Keeps those that had no outcome until then, and returns how many there are.
 */
size_t lost_record(struct db *db, int64_t coupon, struct slot *list, size_t n,
		   struct slot_arrays *arrays);
