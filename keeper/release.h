/*
 * Gives back in Redis what rejected receives hold there, whichever worker rejected them. Each step
 * may be repeated: lua/release.lua acts only where the slot is still that receive's. The keeper's
 * thread of any worker, elected or not.
 *
 * So no fence is needed, here or in query/release_done.sql: a late write is still true.
 */
#ifndef KEEPER_RELEASE_H
#define KEEPER_RELEASE_H

#include "common/ulid.h"
#include "keeper/database.h"
#include "common/redis/client.h"

#define RELEASE_PAGE 256 /* receives in a step, all perhaps of one coupon */

/* Where the next step goes on: after this receive. All 0: at the first. */
struct release {
	int64_t coupon;
	char batch[ULID_UUID_SIZE];
	int64_t index;
};

void release_init(struct release *release);

/*
 * The next page of what is pending. 1 when there may be more, 0 when this was the last page and the
 * next step begins anew, -1 when Redis or PostgreSQL failed (logged): what was not marked
 * stays pending.
 */
int release_step(struct release *release, struct redis_client *redis,
		 struct keeper_database *database);

#endif
