/*
 * Frees the slots that rejected receives have in Redis, regardless of which worker rejected
 * them. Each step may be repeated: lua/slot_free.lua changes a slot only if it still has that
 * receive. The keeper's thread of any worker, elected or not.
 *
 * Therefore a delayed write to Redis needs no fence. sql_query_slot_free_done compares the process
 * of Redis: what was freed in the process before is freed again, be it marked meanwhile or not.
 *
 * The elected keeper also reports to Redis the outcomes of receives of older generations, which
 * Redis counts as reserved after a rebuild: each once, in the order of their numbers.
 */
#pragma once

#include "common/message/receive.h"
#include "common/put_off.h"
#include "keeper/context.h"

#define SLOT_FREE_PAGE 256 /* receives in a step; all may be of one coupon */

/* The next step starts after this receive. All zero: at the first. */
struct slot_free {
	int64_t coupon;
	char batch[ULID_UUID_SIZE];
	int64_t index;
};

/*
 * Frees the next page of pending receives, in the process of Redis of which `run_id` was read
 * over this connection. 1 when there may be more, 0 when this was the last page and the next step
 * starts at the first, -1 when Redis or PostgreSQL failed (logged): receives that were not marked
 * stay pending.
 */
int slot_free_step(struct slot_free *slot_free, struct keeper_context *context, const char *run_id);

#define LATE_PAGE 128 /* outcomes in a step */

/* The next step starts after this number of this coupon. Both 0: at the first. */
struct late {
	int64_t coupon, number;
	struct put_off put_off; /* coupons whose outcomes are locked in PostgreSQL */
};

/* Counts the next page of late outcomes in Redis. Returns as slot_free_step(). */
int late_step(struct late *late, struct keeper_context *context);
