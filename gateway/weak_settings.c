#include "gateway/weak_settings.h"

#include "common/check.h"
#include "gateway/metrics.h"

#include <string.h>

#define AGAIN_MS 60000

/* CONFIG GET returns name and value, or nothing for an unknown name. */
static void on_config(void *context, const redisReply *reply)
{
	struct weak_settings *settings = context;

	if (!reply)
		return; /* the connection is lost: repeated over the next one */
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->str &&
	    reply->element[1]->str)
		durability_tell(&settings->durability, DURABILITY_REDIS, reply->element[0]->str,
				reply->element[1]->str);
	else
		durability_unknown(&settings->durability, DURABILITY_REDIS,
				   reply->str ? reply->str : "CONFIG GET returns nothing");
}

static void on_rows(void *context, const PGresult *rows)
{
	struct weak_settings *settings = context;

	for (int row = 0; rows && row < PQntuples(rows); row++)
		durability_tell(&settings->durability, DURABILITY_POSTGRESQL,
				PQgetvalue(rows, row, PQfnumber(rows, "name")),
				PQgetvalue(rows, row, PQfnumber(rows, "setting")));
}

static void redis_ask(struct weak_settings *settings)
{
	for (int i = 0; i < DURABILITY_N; i++)
		if (durability_part(i) == DURABILITY_REDIS)
			redis_query_config(settings->redis, durability_setting(i), on_config,
					   settings);
}

void weak_settings_tick(struct weak_settings *settings, int64_t now_ms)
{
	uint64_t redis_connects = redis_pool_connects(settings->redis),
		 lookup_connects = lookup_connects_n(settings->lookup);

	if (redis_connects != settings->redis_connects)
		durability_begin(&settings->durability, DURABILITY_REDIS);
	if (redis_connects != settings->redis_connects ||
	    (redis_connects > 0 && now_ms >= settings->redis_due_ms)) {
		redis_ask(settings);
		settings->redis_due_ms = now_ms + AGAIN_MS;
	}
	settings->redis_connects = redis_connects;
	if (lookup_connects != settings->lookup_connects)
		durability_begin(&settings->durability, DURABILITY_POSTGRESQL);
	if ((lookup_connects != settings->lookup_connects ||
	     (lookup_connects > 0 && now_ms >= settings->lookup_due_ms)) &&
	    lookup_is_connected(settings->lookup)) {
		lookup_settings(settings->lookup, on_rows, settings);
		settings->lookup_due_ms = now_ms + AGAIN_MS;
	}
	settings->lookup_connects = lookup_connects;
	metrics_set(METRIC_WEAK_SETTINGS, durability_warnings_n(&settings->durability));
}

cJSON *weak_settings_json(const struct weak_settings *settings)
{
	cJSON *array = cJSON_CreateArray();

	check(array != NULL);
	durability_warnings(&settings->durability, array);
	return array;
}
