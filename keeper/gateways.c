#include "keeper/gateways.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "common/redis/redis.h"
#include "embed.h"

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
#define SILENT_MS 86400000 /* without a row and without a mark: it is forgotten */

struct keeper_gateway {
	char id[ULID_UUID_SIZE];
	UT_hash_handle hh;
	int is_marked; /* it has reported to this process of Redis */
	int has_row;
	int64_t silent_ms; /* since when it is neither; 0: it is */
};

static void gateway_forget(struct keeper_gateways *gateways, struct keeper_gateway *gateway)
{
	HASH_DEL(gateways->known, gateway);
	free(gateway);
}

void keeper_gateways_fini(struct keeper_gateways *gateways)
{
	while (gateways->known)
		gateway_forget(gateways, gateways->known);
}

/* The gateway with this id, or a new one; NULL: it is no id, or they are too many. */
static struct keeper_gateway *gateway_get(struct keeper_gateways *gateways, const char *id)
{
	struct keeper_gateway *gateway;
	size_t len = strlen(id);

	HASH_FIND(hh, gateways->known, id, len, gateway);
	if (gateway || len == 0 || len >= sizeof(gateway->id))
		return gateway;
	if (HASH_COUNT(gateways->known) >= KNOWN_MAX) {
		gateways->full_ms = clock_monotonic_ms();
		return NULL;
	}
	gateway = calloc(1, sizeof(*gateway));
	check(gateway != NULL);
	memcpy(gateway->id, id, len + 1);
	HASH_ADD_KEYPTR(hh, gateways->known, gateway->id, len, gateway);
	return gateway;
}

void keeper_gateways_lost(struct keeper_gateways *gateways)
{
	if (gateways->lost_ms == 0)
		gateways->lost_ms = clock_monotonic_ms();
}

static void marks_take(struct keeper_gateways *gateways, const redisReply *fields)
{
	struct keeper_gateway *gateway, *next;

	HASH_ITER (hh, gateways->known, gateway, next)
		gateway->is_marked = 0;
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		gateway = gateway_get(gateways, fields->element[i]->str);
		if (gateway)
			gateway->is_marked = strcmp(fields->element[i + 1]->str,
						    gateways->run_id) == 0;
	}
}

/* Another process of Redis than before: whether it is known who has seen anything of that one. */
static void process_take(struct keeper_gateways *gateways, struct keeper_context *context)
{
	int64_t until_ms = gateways->lost_ms ? gateways->lost_ms : clock_monotonic_ms();

	gateways->is_complete = gateways->read_ms > 0 &&
				until_ms - gateways->read_ms <= MARKS_READ_MS;
	context->may_open = 0;
	memcpy(gateways->run_id, context->run_id, sizeof(gateways->run_id));
}

int keeper_gateways_read(struct keeper_gateways *gateways, struct keeper_context *context)
{
	const char *hgetall[] = { "HGETALL", GATEWAYS_KEY };
	redisReply *reply;

	if (keeper_context_run_id_read(context))
		return -1;
	if (strcmp(gateways->run_id, context->run_id) != 0)
		process_take(gateways, context);
	reply = redis_client_call(context->redis, 2, hgetall);
	if (!reply && !redis_client_is_open(context->redis))
		return -1;
	/* A key of another type has no marks. */
	if (reply && reply->type == REDIS_REPLY_ARRAY)
		marks_take(gateways, reply);
	if (reply)
		freeReplyObject(reply);
	gateways->read_ms = clock_monotonic_ms();
	gateways->lost_ms = 0;
	return 0;
}

/* One that has ended, or was replaced, or was silent for too long. 0, or -1. */
static int gateway_end(struct keeper_gateways *gateways, struct keeper_context *context,
		       struct keeper_gateway *gateway)
{
	const char *hdel[] = { "HDEL", GATEWAYS_KEY, gateway->id };
	redisReply *reply = redis_client_call(context->redis, 3, hdel);

	if (reply)
		freeReplyObject(reply);
	gateway_forget(gateways, gateway);
	return redis_client_is_open(context->redis) ? 0 : -1;
}

/* 0, or -1. */
static int row_take(struct keeper_gateways *gateways, struct keeper_context *context,
		    const char *id, int is_gone)
{
	struct keeper_gateway *gateway;

	if (is_gone) {
		HASH_FIND(hh, gateways->known, id, strlen(id), gateway);
		return gateway ? gateway_end(gateways, context, gateway) : 0;
	}
	gateway = gateway_get(gateways, id);
	if (gateway)
		gateway->has_row = 1;
	return 0;
}

static int rows_read(struct keeper_gateways *gateways, struct keeper_context *context)
{
	const struct postgres_argument most = postgres_number(2 * KNOWN_MAX);
	PGresult *rows = keeper_database_query(context->database, sql_query_gateway_rows, 1, &most);
	struct keeper_gateway *gateway, *next;
	int rc = rows ? 0 : -1;

	HASH_ITER (hh, gateways->known, gateway, next)
		gateway->has_row = 0;
	for (int i = 0; rc == 0 && i < PQntuples(rows); i++)
		rc = row_take(gateways, context, PQgetvalue(rows, i, 0),
			      *PQgetvalue(rows, i, 1) == 't');
	PQclear(rows);
	return rc;
}

/* Forgets those that are gone; without a row, those that were not heard of for a day. 0, or -1. */
static int tidy(struct keeper_gateways *gateways, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();
	struct keeper_gateway *gateway, *next;
	int rc = rows_read(gateways, context);

	HASH_ITER (hh, gateways->known, gateway, next) {
		if (rc)
			return rc;
		if (gateway->has_row || gateway->is_marked)
			gateway->silent_ms = 0;
		else if (gateway->silent_ms == 0)
			gateway->silent_ms = now_ms;
		else if (now_ms - gateway->silent_ms >= SILENT_MS)
			rc = gateway_end(gateways, context, gateway);
	}
	return rc;
}

/* How many have not reported; -1: it cannot be told. */
static int missing_count(const struct keeper_gateways *gateways, const char **missing)
{
	int64_t now_ms = clock_monotonic_ms();
	struct keeper_gateway *gateway, *next;
	int n = 0;

	if (!gateways->is_complete || !gateways->known ||
	    (gateways->full_ms && now_ms - gateways->full_ms < SILENT_MS))
		return -1;
	HASH_ITER (hh, gateways->known, gateway, next) {
		if (gateway->is_marked)
			continue;
		*missing = gateway->id;
		n++;
	}
	return n;
}

static void reported_look(struct keeper_gateways *gateways, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();
	const char *missing = "";
	int n = missing_count(gateways, &missing);

	context->may_open = 1;
	if (n == 0 && now_ms - keeper_database_since_ms(context->database) >= ROWS_AFTER_MS)
		log_info("gateways_reported", LOG_I("gateways", HASH_COUNT(gateways->known)),
			 LOG_S("run_id", gateways->run_id));
	else if (now_ms - context->run_since_ms < REPORTS_MS)
		context->may_open = 0;
	else if (n > 0)
		log_warn("gateways_missing", LOG_I("gateways", n), LOG_S("one", missing),
			 LOG_S("run_id", gateways->run_id));
	else
		log_info("gateways_unknown", LOG_S("run_id", gateways->run_id));
}

int keeper_gateways_round(struct keeper_gateways *gateways, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();

	if (!context->may_open) {
		if (rows_read(gateways, context))
			return -1;
		reported_look(gateways, context);
	}
	if (now_ms < gateways->tidy_ms)
		return 0;
	gateways->tidy_ms = now_ms + TIDY_MS;
	return tidy(gateways, context);
}
