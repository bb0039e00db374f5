/*
 * What couponctl check, audit and doctor read of the stores: the settings that the promises need,
 * the clocks, and the lock of the keeper. Nothing is changed, and no failure ends the process.
 */
#pragma once

#include "common/program/weak_settings.h"
#include "common/redis/redis_client.h"
#include "ctl/database.h"

#define CLOCKS_DIFFER_MS 500 /* more than people notice */

/* Tells the settings of Redis; one that it does not show makes that part unknown. */
void vitals_redis_settings(struct redis_client *redis, int has_sentinels,
			   struct durability *durability);
/* Tells the settings of this session, the rows of sql_query_durability. */
void vitals_postgresql_settings(const PGresult *rows, struct durability *durability);

/*
 * Whether a holder of the keeper's lock, a field KIND:TOKEN in the reply to HGETALL of it, has a
 * lease that has not ended.
 */
int keeper_holds(const redisReply *lock, int64_t now_ms);

/*
 * How far the clock of a store is ahead of this machine's, by the fastest of several answers. One
 * of the stores is NULL. 0, or -1: it does not answer.
 */
int vitals_clock_ahead(struct redis_client *redis, struct db *db, int64_t *ahead_ms);
