#include "ctl/doctor/vitals.h"

#include "common/clock.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define CLOCK_TRIES 3

void vitals_redis_settings(struct redis_client *redis, int has_sentinels,
			   struct durability *durability)
{
	const char *setting;

	for (int i = 0; (setting = durability_redis_setting(i, has_sentinels)); i++) {
		const char *get[] = { "CONFIG", "GET", setting };
		redisReply *reply = redis_client_call(redis, 3, get);

		if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
			durability_tell(durability, setting, reply->element[1]->str);
		else
			durability_unknown(durability, DURABILITY_REDIS,
					   reply ? "CONFIG GET returns nothing"
						 : redis_client_error(redis));
		freeReplyObject(reply);
	}
}

void vitals_postgresql_settings(const PGresult *rows, struct durability *durability)
{
	for (int row = 0; row < PQntuples(rows); row++)
		durability_tell(durability, column_text(rows, row, "name"),
				column_text(rows, row, "setting"));
}

int keeper_holds(const redisReply *lock, int64_t now_ms)
{
	if (lock->type != REDIS_REPLY_ARRAY)
		return 0;
	for (size_t i = 0; i + 1 < lock->elements; i += 2)
		if (strchr(lock->element[i]->str, ':') &&
		    strtoll(lock->element[i + 1]->str, NULL, 10) > now_ms)
			return 1;
	return 0;
}

static int postgresql_time_ms(struct db *db, int64_t *ms)
{
	PGresult *rows = db_ask_try(db, sql_query_clock);

	if (!rows)
		return -1;
	*ms = db_value_take(rows);
	return 0;
}

int vitals_clock_ahead(struct redis_client *redis, struct db *db, int64_t *ahead_ms)
{
	int64_t least_ms = INT64_MAX;

	for (int i = 0; i < CLOCK_TRIES; i++) {
		int64_t before_ms = clock_wall_ms(), ms, after_ms;

		if (redis ? redis_client_time_ms(redis, &ms) : postgresql_time_ms(db, &ms))
			return -1;
		after_ms = clock_wall_ms();
		if (after_ms - before_ms >= least_ms)
			continue;
		least_ms = after_ms - before_ms;
		*ahead_ms = ms - (before_ms + after_ms) / 2;
	}
	return 0;
}
