#include "keeper/keeper_stores.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/api_keys.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/message/receive.h"
#include "coupon/copies.h"
#include "coupon/redis_coupon.h"
#include "embed.h"
#include "keeper/metrics.h"
#include "keeper/rebuild/rebuild.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Their backoff is at most 2 s: by then they have connected, and reported. */
#define REPORTS_MS 2500
#define KNOWN_MAX 1024
/* A gateway without a row issues nothing before its mark is a second older than this. */
#define MARKS_READ_MS 2000
/* Over a new connection to PostgreSQL: by then gateways have connected, and written their rows. */
#define ROWS_AFTER_MS 3000
#define TIDY_MS 3600000
#define TIDY_LACKING_MS 1000 /* while one of them may have receives that Redis lacks */
#define SILENT_MS 86400000   /* without a row and without a mark: it is forgotten */
#define HOLD_MS 2000         /* between two passes over all coupons */
#define ADOPT_MS 3000        /* so long a Redis without an id is left to the gateways */
#define SCAN_COUNT "1000"
#define KEY_HEAD "coupon:{"
#define KEYS_PAGES 100 /* in a round: 10,000 keys */

struct keeper_gateway {
	char id[ULID_UUID_SIZE];
	UT_hash_handle hh;
	int is_marked;  /* it has reported to this process of Redis */
	int is_near;    /* or in another term of it */
	int is_lacking; /* it has receives that Redis lacks */
	int has_row;
	/* since when it was not heard of, by its row, or has neither row nor mark; 0: it has one */
	int64_t silent_ms;
};

/* Reads the numbers of PostgreSQL: those of changes, the fence, that of API keys. 0, or -1. */
static int counts_read(struct keeper_context *context, struct changes *changes, int64_t *fence,
		       int64_t *keys)
{
	PGresult *rows = keeper_database_query(context->database, sql_query_change_counts, 0, NULL);

	if (!rows)
		return -1;
	changes_take(changes, rows);
	*fence = PQntuples(rows) > 0 ? number_at(rows, 0, 2) : 0;
	*keys = PQntuples(rows) > 0 ? number_at(rows, 0, 4) : 0;
	PQclear(rows);
	return 0;
}

int keeper_stores_compare(struct keeper_stores *stores, struct keeper_context *context)
{
	struct changes *copy = &stores->copy;
	enum relation before = stores->relation;
	struct changes changes;
	struct standing standing;

	/* Redis first: what PostgreSQL commits in between does not make Redis look ahead. */
	if (key_copy_version(context->redis, &stores->keys_copied)) {
		stores->keys_copied = -1;
		if (!redis_client_is_open(context->redis))
			return -1;
	}
	if (counts_read(context, &changes, &stores->fence, &stores->keys_version))
		return -1;
	standing = changes_stand(before, &changes, copy);
	if (standing.follow != FOLLOW_NONE) {
		standing.relation = changes_follow(context->redis, &changes, standing.follow);
		if (standing.relation == RELATION_UNKNOWN || standing.relation == RELATION_OTHER)
			return -1;
		/* What the server before had copied until it was left is compared, too. */
		if (standing.relation == RELATION_OWN) {
			if (changes_copy_read(copy, context->redis) ||
			    counts_read(context, &changes, &stores->fence, &stores->keys_version))
				return -1;
			standing = changes_stand(before, &changes, copy);
			if (standing.follow != FOLLOW_NONE)
				return -1;
		}
	}
	if (standing.relation == RELATION_STANDBY) {
		postgres_lose(keeper_database_session(context->database), SERVER_STANDBY_TEXT);
		return -1;
	}

	if (strcmp(stores->installation, changes.installation) != 0)
		stores->installations_n++;
	memcpy(stores->installation, changes.installation, INSTALLATION_SIZE);
	relation_log(before, standing.relation, &changes, copy);
	stores->relation = standing.relation;
	if (standing.relation != RELATION_UNADOPTED)
		stores->unadopted_ms = 0;
	else if (stores->unadopted_ms == 0)
		stores->unadopted_ms = clock_monotonic_ms();
	/* Redis has no id. The gateways get some time, then it gets the one of this PostgreSQL. */
	if (stores->unadopted_ms && clock_monotonic_ms() - stores->unadopted_ms >= ADOPT_MS &&
	    changes_adopt(context->redis, stores->installation, NULL) == RELATION_OWN)
		log_info("installation_adopted", LOG_S("installation", stores->installation));
	if (!relation_is_followed(standing.relation))
		return 0;
	stores->lack = (struct keeper_lack){ .transactions = standing.behind,
					     .others = changes_behind_others(&changes, copy),
					     .is_promoted = strcmp(changes.server.system,
								   copy->server.system) == 0 };
	if (standing.relation == RELATION_BEHIND)
		return 0;
	stores->hold_due_ms = 0;
	return changes_copy_raise(context->redis, &changes, copy);
}

int keeper_stores_copy(struct keeper_context *context)
{
	struct changes changes, copy;
	int64_t fence, keys;

	if (changes_copy_read(&copy, context->redis) ||
	    counts_read(context, &changes, &fence, &keys))
		return -1;
	return changes_copy_raise(context->redis, &changes, &copy);
}

/*
 * Holds one coupon. The fence in PostgreSQL may be below that of the coupon, so the coupon's own is
 * used.
 */
static void coupon_hold(struct keeper_context *context, int64_t coupon)
{
	char word[REDIS_WORD_SIZE];
	int64_t own = context->fence;
	redisReply *reply = coupon_call(context->redis, coupon, "HGET", COUPON_KEY_COUPON, "fence",
					NULL);

	if (!reply)
		return;
	context->fence = redis_reply_number(reply);
	freeReplyObject(reply);
	keeper_context_fence(context);
	context->fence = own;
	rebuild_hold_append(context, &(struct coupon_row){ .id = coupon }, 0);
	redis_word_take(redis_client_next(context->redis), word);
	if (strcmp(word, "held") != 0)
		log_warn("coupon_hold_failed", LOG_I("coupon", coupon), LOG_S("why", word));
}

int keeper_stores_hold(struct keeper_stores *stores, struct keeper_context *context)
{
	char cursor[REDIS_CURSOR_SIZE] = "0";
	const char *scan[] = { "SCAN", cursor, "MATCH", KEY_HEAD "*}", "COUNT", SCAN_COUNT };

	if (clock_monotonic_ms() < stores->hold_due_ms)
		return 0;
	do {
		redisReply *reply;

		if (keeper_context_goes_on(context))
			return -1;
		reply = redis_client_call(context->redis, 6, scan);
		if (!reply || !redis_reply_is_scan(reply)) {
			freeReplyObject(reply);
			return -1;
		}
		snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
		for (size_t i = 0; i < reply->element[1]->elements; i++) {
			const char *name = reply->element[1]->element[i]->str + strlen(KEY_HEAD);
			size_t len = strlen(name); /* with the last brace */
			int64_t coupon;

			if (len > 1 && id_parse(name, len - 1, &coupon) == 0)
				coupon_hold(context, coupon);
		}
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
	stores->hold_due_ms = clock_monotonic_ms() + HOLD_MS;
	return redis_client_is_open(context->redis) ? 0 : -1;
}

static void gateway_forget(struct keeper_stores *stores, struct keeper_gateway *gateway)
{
	HASH_DEL(stores->gateways, gateway);
	free(gateway);
}

void keeper_stores_fini(struct keeper_stores *stores)
{
	while (stores->gateways)
		gateway_forget(stores, stores->gateways);
}

/* The gateway with this id, or a new one; NULL: it is no id, or they are too many. */
static struct keeper_gateway *gateway_get(struct keeper_stores *stores, const char *id)
{
	struct keeper_gateway *gateway;
	size_t len = strlen(id);

	HASH_FIND(hh, stores->gateways, id, len, gateway);
	if (gateway || len == 0 || len >= sizeof(gateway->id))
		return gateway;
	if (HASH_COUNT(stores->gateways) >= KNOWN_MAX) {
		stores->full_ms = clock_monotonic_ms();
		return NULL;
	}
	gateway = checked(calloc(1, sizeof(*gateway)));
	memcpy(gateway->id, id, len + 1);
	HASH_ADD_KEYPTR(hh, stores->gateways, gateway->id, len, gateway);
	return gateway;
}

void keeper_stores_lost(struct keeper_stores *stores)
{
	if (stores->lost_ms == 0)
		stores->lost_ms = clock_monotonic_ms();
}

int keeper_stores_read(struct keeper_stores *stores, struct keeper_context *context)
{
	const char *hgetall[] = { "HGETALL", GATEWAYS_KEY };
	const char *uncopied[] = { "HGETALL", UNCOPIED_KEY };
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t uptime_s, now_ms = clock_monotonic_ms(),
			  until_ms = stores->lost_ms ? stores->lost_ms : now_ms;
	struct keeper_gateway *gateway, *next;
	redisReply *reply;

	/* In another process than before: is it known who has seen anything of the one before? */
	if (redis_client_process(context->redis, run_id, &uptime_s))
		return -1;
	if (strcmp(run_id, context->run_id) != 0) {
		stores->is_complete = stores->read_ms > 0 &&
				      until_ms - stores->read_ms <= MARKS_READ_MS;
		context->may_open = 0;
		context->term_since_ms = *context->run_id ? now_ms : now_ms - uptime_s * 1000;
		if (strncmp(run_id, context->run_id, REDIS_PROCESS_LEN) != 0)
			context->run_since_ms = context->term_since_ms;
		memcpy(context->run_id, run_id, sizeof(run_id));
	}

	/* Which gateways have reported to it? A key of another type has no marks. */
	reply = redis_client_call(context->redis, 2, hgetall);
	if (!reply && !redis_client_is_open(context->redis))
		return -1;
	if (reply && reply->type == REDIS_REPLY_ARRAY) {
		HASH_ITER (hh, stores->gateways, gateway, next)
			gateway->is_marked = gateway->is_near = gateway->is_lacking = 0;
		for (size_t i = 0; i + 1 < reply->elements; i += 2) {
			const char *id = reply->element[i]->str, *mark = reply->element[i + 1]->str;

			/* The field GATEWAYS_NEWS is of couponctl. */
			gateway = strcmp(id, GATEWAYS_NEWS) != 0 ? gateway_get(stores, id) : NULL;
			if (!gateway)
				continue;
			gateway->is_marked = strcmp(mark, run_id) == 0;
			gateway->is_near = strncmp(mark, run_id, REDIS_PROCESS_LEN) == 0;
		}
	}
	freeReplyObject(reply);

	/* Which have receives that it lacks? */
	reply = redis_client_call(context->redis, 2, uncopied);
	if (!reply && !redis_client_is_open(context->redis))
		return -1;
	for (size_t i = 0; reply && reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements;
	     i += 2) {
		gateway = gateway_get(stores, reply->element[i]->str);
		if (gateway)
			gateway->is_lacking = 1;
	}
	freeReplyObject(reply);
	stores->read_ms = clock_monotonic_ms();
	stores->lost_ms = 0;
	return 0;
}

/* One that has ended, or was replaced, or was silent for too long. 0, or -1. */
static int gateway_end(struct keeper_stores *stores, struct keeper_context *context,
		       struct keeper_gateway *gateway)
{
	const char *hdel[] = { "HDEL", GATEWAYS_KEY, gateway->id },
		   *uncopied[] = { "HDEL", UNCOPIED_KEY, gateway->id },
		   *knows[] = { "HDEL", KNOWS_KEY, gateway->id };

	freeReplyObject(redis_client_call(context->redis, 3, hdel));
	freeReplyObject(redis_client_call(context->redis, 3, uncopied));
	freeReplyObject(redis_client_call(context->redis, 3, knows));
	gateway_forget(stores, gateway);
	return redis_client_is_open(context->redis) ? 0 : -1;
}

/* Reads which gateways have a row in PostgreSQL, and forgets those that have ended. 0, or -1. */
static int rows_read(struct keeper_stores *stores, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();
	PGresult *rows = keeper_database_query(context->database, sql_query_gateway_rows,
					       POSTGRES_ARGUMENTS(postgres_number(2 * KNOWN_MAX)));
	struct keeper_gateway *gateway, *next;
	int rc = rows ? 0 : -1;

	HASH_ITER (hh, stores->gateways, gateway, next)
		gateway->has_row = 0;
	for (int i = 0; rc == 0 && i < PQntuples(rows); i++) {
		const char *id = PQgetvalue(rows, i, 0);
		int is_gone = *PQgetvalue(rows, i, 1) == 't';

		if (is_gone)
			HASH_FIND(hh, stores->gateways, id, strlen(id), gateway);
		else
			gateway = gateway_get(stores, id);
		if (gateway && is_gone)
			rc = gateway_end(stores, context, gateway);
		else if (gateway) {
			gateway->has_row = 1;
			gateway->silent_ms = now_ms - number_at(rows, i, 2) * 1000;
		}
	}
	PQclear(rows);
	return rc;
}

/*
 * After a change of the Redis process: sets `may_open` if all gateways have reported to it what
 * they have seen, or have had the time to.
 */
static void reported_look(struct keeper_stores *stores, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms(), since_ms = context->term_since_ms;
	struct keeper_gateway *gateway, *next;
	const char *missing = "";
	int are_near =
		0; /* one that is missing has reported to another term, and may be about to */
	int n = 0; /* how many are missing; -1: it cannot be told */

	if (!stores->is_complete || !stores->gateways ||
	    (stores->full_ms && now_ms - stores->full_ms < SILENT_MS))
		n = -1;
	HASH_ITER (hh, stores->gateways, gateway, next) {
		if (n < 0 || gateway->is_marked)
			continue;
		missing = gateway->id;
		are_near |= gateway->is_near;
		n++;
	}
	if (n > 0 && !are_near)
		since_ms = context->run_since_ms;

	context->may_open = 1;
	if (n == 0 &&
	    now_ms - postgres_since_ms(keeper_database_session(context->database)) >= ROWS_AFTER_MS)
		log_info("gateways_reported", LOG_I("gateways", HASH_COUNT(stores->gateways)),
			 LOG_S("run_id", context->run_id));
	else if (now_ms - since_ms < REPORTS_MS)
		context->may_open = 0;
	else if (n > 0)
		log_warn("gateways_missing", LOG_I("gateways", n), LOG_S("one", missing),
			 LOG_S("run_id", context->run_id));
	else
		log_info("gateways_unknown", LOG_S("run_id", context->run_id));
}

int keeper_stores_round(struct keeper_stores *stores, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms(), lacking_n = 0;
	struct keeper_gateway *gateway, *next;

	if (!context->may_open) {
		if (rows_read(stores, context))
			return -1;
		reported_look(stores, context);
	}

	/* Forget gateways that are gone, and those without a row that were silent for a day. */
	if (now_ms >= stores->tidy_ms) {
		stores->tidy_ms = now_ms + TIDY_MS;
		if (rows_read(stores, context))
			return -1;
		HASH_ITER (hh, stores->gateways, gateway, next) {
			if (gateway->has_row)
				continue;
			if (gateway->is_marked)
				gateway->silent_ms = 0;
			else if (gateway->silent_ms == 0)
				gateway->silent_ms = now_ms;
			else if (now_ms - gateway->silent_ms >= SILENT_MS &&
				 gateway_end(stores, context, gateway))
				return -1;
		}
	}

	/*
	 * Count those that may have receives which neither RabbitMQ nor Redis has, without those
	 * that are taken for dead. The rows tell which: while there is any such gateway they are
	 * read each second.
	 */
	HASH_ITER (hh, stores->gateways, gateway, next) {
		if (!gateway->is_lacking && gateway->is_near)
			continue;
		if (stores->tidy_ms > now_ms + TIDY_LACKING_MS)
			stores->tidy_ms = now_ms + TIDY_LACKING_MS;
		lacking_n += gateway->silent_ms == 0 ||
			     now_ms - gateway->silent_ms <= COPIES_SILENT_S * 1000;
	}
	metrics_set(KEEPER_METRIC_GATEWAYS_LACKING, lacking_n);
	return 0;
}

int keeper_stores_keys(struct keeper_stores *stores, struct keeper_context *context)
{
	int64_t ahead = stores->keys_copied - stores->keys_version;

	if (stores->keys_copied >= 0) {
		metrics_set(KEEPER_METRIC_KEYS_AHEAD, ahead > 0);
		if (ahead > 0 && !stores->keys_are_ahead)
			log_warn("keys_ahead", LOG_I("changes", ahead),
				 LOG_S("why", "PostgreSQL was put back to an earlier moment"),
				 LOG_S("mend", "couponctl recover --all"));
		else if (ahead <= 0 && stores->keys_are_ahead)
			log_info("keys_agree", LOG_I("version", stores->keys_version));
		stores->keys_are_ahead = ahead > 0;
	}
	for (int i = 0; i < KEYS_PAGES; i++) {
		PGresult *rows;
		enum key_copied copied;

		if (stores->keys_copied < 0 || stores->keys_copied >= stores->keys_version)
			return 0;
		if (keeper_context_goes_on(context))
			return -1;

		/* Copy a page: `keys_copied` is then how far Redis has them. */
		rows = keeper_database_query(context->database, sql_query_key_records,
					     POSTGRES_ARGUMENTS(postgres_number(
									stores->keys_copied),
								postgres_number(KEY_COPY_PAGE)));
		if (!rows)
			return -1;
		fault_point(FAULT_KEEPER_BEFORE_KEYS);
		copied = key_copy_write(context->redis, stores->installation, rows,
					&stores->keys_copied, stores->keys_version);
		fault_point(FAULT_KEEPER_AFTER_KEYS);
		if (copied == KEY_COPIED)
			metrics_add(KEEPER_METRIC_KEYS_COPIED, PQntuples(rows));
		else
			stores->keys_copied = -1; /* the next round begins anew */
		PQclear(rows);
		if (copied == KEY_COPY_FAILED && !redis_client_is_open(context->redis))
			return -1;
	}
	return 0;
}
