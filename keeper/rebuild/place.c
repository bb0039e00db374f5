#include "keeper/rebuild/place.h"

#include "common/check.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/rebuild/codes.h"

#include <stdlib.h>
#include <string.h>

#define KEYS_MAX (COUPON_KEYS_MAX + 3)
#define HEAD 12
#define EACH 3
#define OLDER_MAX ((REDIS_CLIENT_ARGS_MAX - HEAD) / EACH) /* of one call */

int place_generation(struct keeper_context *context, const struct coupon_row *row,
		     int64_t redis_generation, int64_t *generation)
{
	const struct postgres_argument arguments[] = { postgres_number(row->id),
						       postgres_number(row->generation),
						       postgres_number(redis_generation),
						       postgres_number(context->fence) };
	PGresult *result = keeper_database_query(context->database,
						 sql_query_coupon_generation_open, 4, arguments);

	if (!result)
		return -1;
	*generation = PQntuples(result) == 1 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
	PQclear(result);
	return 0;
}

int place_append(struct keeper_context *context, const struct placing *placing, const char *fence)
{
	const struct coupon_row *row = placing->row;
	struct coupon_keys keys;
	char users[COUPON_KEY_SIZE], known[COUPON_KEY_SIZE], codes[COUPON_KEY_SIZE];
	const char *names[KEYS_MAX];
	char head[HEAD][NUMBER_SIZE], older[OLDER_MAX * EACH][NUMBER_SIZE];
	const char *argv[HEAD + OLDER_MAX * EACH] = {
		fence,
		context->run_id,
		number_text(placing->generation, head[2]),
		number_text(row->version, head[3]),
		coupon_status_text(row->status),
		number_text(row->total, head[5]),
		number_text(row->begin_ms, head[6]),
		number_text(row->end_ms, head[7]),
		number_text(row->limit, head[8]),
		number_text(placing->issued, head[9]),
		number_text(placing->late, head[10]),
		number_text(placing->revocation, head[11]),
	};
	int argc = HEAD;

	/* Leaving some out would give their receives in flight away as stock. */
	if (placing->older_n > OLDER_MAX) {
		log_error("generations_too_many", LOG_I("coupon", row->id),
			  LOG_I("generations", (int64_t)placing->older_n));
		return -1;
	}
	for (size_t i = 0; i < placing->older_n; i++) {
		const struct snapshot_generation *generation = &placing->older[i];
		const int64_t three[EACH] = { generation->number, generation->seq_seen,
					      generation->settled };

		for (int j = 0; j < EACH; j++, argc++)
			argv[argc] = number_text(three[j], older[argc - HEAD]);
	}
	coupon_keys_make(&keys, row->id, COUPON_KEYS_PLACE);
	memcpy(names, keys.names, (size_t)keys.n * sizeof(*names));
	names[keys.n] = coupon_key_filling(row->id, placing->generation, COUPON_KEY_USERS, users);
	names[keys.n + 1] = coupon_key_filling(row->id, placing->generation, COUPON_KEY_KNOWN,
					       known);
	names[keys.n + 2] = coupon_key_filling(row->id, placing->generation, COUPON_KEY_CODES,
					       codes);
	redis_client_append_eval(context->redis, lua_place, keys.n + 3, names, argc, argv);
	return 0;
}

redisReply *place_run(struct keeper_context *context, struct placing *placing)
{
	for (;;) {
		char fence[KEEPER_FENCE_SIZE];
		redisReply *reply = place_append(context, placing,
						 keeper_context_fence(context, fence))
					    ? NULL
					    : redis_client_next(context->redis);
		int64_t filled = placing->revocation;

		if (!reply || reply->type != REDIS_REPLY_STRING ||
		    strcmp(reply->str, "revoked") != 0 || keeper_context_goes_on(context) ||
		    codes_fill_more(context, placing->row->id, placing->generation,
				    &placing->revocation))
			return reply;
		if (placing->revocation == filled) {
			log_error("revocations_lost", LOG_I("coupon", placing->row->id),
				  LOG_I("last", filled));
			return reply;
		}
		freeReplyObject(reply);
	}
}

int place_is_done(const redisReply *reply)
{
	return reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 5;
}
