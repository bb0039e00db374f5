#include "gateway/status.h"

#include "common/check.h"
#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text_copy(const char *text)
{
	char *copy = strdup(text);

	check(copy != NULL);
	return copy;
}

/* One status request between its steps. */
struct status_query {
	const struct status_parts *parts;
	struct request *request;
	int redis_answered;
	int unsure; /* as it was asked: something may have taken effect after Redis was read */
	char *records; /* of the user, as issue.lua wrote them: SLOT:BATCH:INDEX:KEY, a line each; NULL: none */
};

/* A taken slot, from Redis. */
struct record {
	int slot;
	struct receive receive;
};

/* Takes the next record of the text; 0, or -1 at its end (or where it is not what issue.lua writes). */
static int record_next(const char **text, const struct request *request, struct record *record)
{
	const char *at = *text, *stop;
	char batch[ULID_SIZE];
	int used = 0;

	if (!at || sscanf(at, "%3d:%26[0-9A-Z]:%3d:%n", &record->slot, batch, &record->receive.index, &used) != 3 || !used)
		return -1;
	if (ulid_parse(&record->receive.batch, batch, strlen(batch)))
		return -1;
	record->receive.coupon = request->coupon;
	record->receive.user = request->user;
	stop = strchr(at + used, '\n');
	*text = stop ? stop + 1 : NULL;
	return 0;
}

static int same_receive(const struct receive *a, const struct receive *b)
{
	return a->index == b->index && memcmp(&a->batch, &b->batch, sizeof(a->batch)) == 0;
}

static void member_receive(cJSON *object, const struct receive *receive, int slot)
{
	char text[RECEIVE_SIZE];

	receive_format(receive, text);
	cJSON_AddStringToObject(object, "receive", text);
	cJSON_AddNumberToObject(object, "slot", slot);
}

/* Adds the column where the row has it. */
static void member_column(cJSON *object, const PGresult *rows, int row, const char *name)
{
	int column = PQfnumber(rows, name);

	if (column >= 0 && !PQgetisnull(rows, row, column))
		cJSON_AddStringToObject(object, name, PQgetvalue(rows, row, column));
}

static const char *column_text(const PGresult *rows, int row, const char *name)
{
	return PQgetvalue(rows, row, PQfnumber(rows, name));
}

static void query_free(struct status_query *query)
{
	free(query->records);
	free(query);
}

/* Whether what is not there now cannot still come: as far as this gateway knows. */
static int none_is_final(const struct status_query *query)
{
	return query->parts->alone && !query->unsure &&
	       !admission_is_unsure(query->parts->admission, query->request->coupon);
}

static void answer_none(struct status_query *query)
{
	struct request *request = query->request;
	cJSON *object;

	if (!query->redis_answered) {
		request_fail(request, ANSWER_UNAVAILABLE, "Redis is away: whether there is such a receive cannot be told now");
		return;
	}
	object = cJSON_CreateObject();
	check(object != NULL);
	cJSON_AddBoolToObject(object, "final", none_is_final(query));
	cJSON_AddStringToObject(object, "message", "there is no such receive");
	request_answer_object(request, ANSWER_NOT_FOUND, NULL, object);
}

/* PostgreSQL has nothing of the receive: what Redis knows counts. */
static void answer_by_redis(struct status_query *query)
{
	const char *at = query->records;
	struct record record;
	cJSON *object;

	while (record_next(&at, query->request, &record) == 0) {
		if (!same_receive(&record.receive, &query->request->receive))
			continue;
		object = cJSON_CreateObject();
		check(object != NULL);
		member_receive(object, &record.receive, record.slot);
		request_answer_object(query->request, ANSWER_OK, "accepted", object);
		return;
	}
	answer_none(query);
}

static void on_receive(void *context, const PGresult *rows)
{
	struct status_query *query = context;
	struct request *request = query->request;
	cJSON *object;
	int rejected;

	if (!rows || PQntuples(rows) == 0) {
		if (rows)
			answer_by_redis(query);
		else
			request_fail(request, ANSWER_UNAVAILABLE, "PostgreSQL is away: the receive cannot be looked up now");
		query_free(query);
		return;
	}
	rejected = strcmp(column_text(rows, 0, "state"), "rejected") == 0;
	object = cJSON_CreateObject();
	check(object != NULL);
	member_receive(object, &request->receive, atoi(column_text(rows, 0, "slot")));
	member_column(object, rows, 0, "reason");
	member_column(object, rows, 0, "valid_from");
	member_column(object, rows, 0, "valid_to");
	if (rejected)
		cJSON_AddStringToObject(object, "message", answer_text(ANSWER_REJECTED));
	request_answer_object(request, rejected ? ANSWER_REJECTED : ANSWER_OK, rejected ? NULL : "issued", object);
	query_free(query);
}

static void receive_of_row(struct receive *receive, const struct request *request, const PGresult *rows, int row)
{
	receive->coupon = request->coupon;
	receive->user = request->user;
	receive->index = atoi(column_text(rows, row, "idx"));
	if (ulid_from_uuid(&receive->batch, column_text(rows, row, "batch")))
		memset(&receive->batch, 0, sizeof(receive->batch));
}

/* The receives that Redis has and the rows have not: in flight. */
static void add_in_flight(cJSON *receives, const struct status_query *query, const PGresult *rows)
{
	const char *at = query->records;
	struct record record;
	struct receive settled;

	while (record_next(&at, query->request, &record) == 0) {
		int found = 0;
		cJSON *object;

		for (int row = 0; row < PQntuples(rows) && !found; row++) {
			receive_of_row(&settled, query->request, rows, row);
			found = same_receive(&settled, &record.receive);
		}
		if (found)
			continue;
		object = cJSON_CreateObject();
		check(object != NULL);
		member_receive(object, &record.receive, record.slot);
		cJSON_AddStringToObject(object, "state", "accepted");
		cJSON_AddItemToArray(receives, object);
	}
}

static void on_user(void *context, const PGresult *rows)
{
	struct status_query *query = context;
	struct request *request = query->request;
	cJSON *object, *receives;
	char id[ID_SIZE];

	if (!rows || !query->redis_answered) {
		request_fail(request, ANSWER_UNAVAILABLE, rows ? "Redis is away: what is in flight cannot be told now" :
								 "PostgreSQL is away: the receives cannot be looked up now");
		query_free(query);
		return;
	}
	object = cJSON_CreateObject();
	check(object != NULL);
	id_format(request->coupon, id);
	cJSON_AddStringToObject(object, "coupon", id);
	id_format(request->user, id);
	cJSON_AddStringToObject(object, "user", id);
	receives = cJSON_AddArrayToObject(object, "receives");
	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *item = cJSON_CreateObject();
		struct receive receive;

		check(item != NULL);
		receive_of_row(&receive, request, rows, row);
		member_receive(item, &receive, atoi(column_text(rows, row, "slot")));
		member_column(item, rows, row, "state");
		member_column(item, rows, row, "reason");
		member_column(item, rows, row, "valid_from");
		member_column(item, rows, row, "valid_to");
		cJSON_AddItemToArray(receives, item);
	}
	add_in_flight(receives, query, rows);
	if (cJSON_GetArraySize(receives) == 0)
		cJSON_AddBoolToObject(object, "final", none_is_final(query));
	request_answer_object(request, ANSWER_OK, NULL, object);
	query_free(query);
}

static void on_records(void *context, const redisReply *reply)
{
	struct status_query *query = context;
	struct request *request = query->request;
	int rc;

	query->redis_answered = reply && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL);
	if (query->redis_answered && reply->type == REDIS_REPLY_STRING)
		query->records = text_copy(reply->str);
	if (request->by_receive)
		rc = lookup_receive(query->parts->lookup, &request->receive, on_receive, query);
	else
		rc = lookup_user(query->parts->lookup, request->coupon, request->user, on_user, query);
	if (rc) {
		request_fail(request, ANSWER_BUSY, NULL);
		query_free(query);
	}
}

static struct status_query *query_new(const struct status_parts *parts, struct request *request)
{
	struct status_query *query = calloc(1, sizeof(*query));

	check(query != NULL);
	query->parts = parts;
	query->request = request;
	query->unsure = admission_is_unsure(parts->admission, request->coupon);
	return query;
}

void status_answer(const struct status_parts *parts, struct request *request)
{
	redis_pool_user(parts->redis, request->coupon, request->user, on_records, query_new(parts, request));
}

enum coupon_state coupon_state_of(const PGresult *rows)
{
	const char *status;
	int64_t end_ms, now_ms;

	if (!rows)
		return COUPON_LOOKUP_FAILED;
	if (PQntuples(rows) == 0)
		return COUPON_ABSENT;
	status = column_text(rows, 0, "status");
	end_ms = strtoll(column_text(rows, 0, "end_ms"), NULL, 10);
	now_ms = strtoll(column_text(rows, 0, "now_ms"), NULL, 10);
	if (strcmp(status, "draft") == 0)
		return COUPON_ABSENT; /* not published: nobody is to know of it */
	if (strcmp(status, "closed") == 0 || (end_ms > 0 && end_ms <= now_ms))
		return COUPON_ENDED;
	return strcmp(status, "paused") == 0 ? COUPON_PAUSED : COUPON_PUBLISHED;
}

static void on_coupon_row(void *context, const PGresult *rows)
{
	struct status_query *query = context;
	struct request *request = query->request;

	switch (coupon_state_of(rows)) {
	case COUPON_ABSENT:
		request_fail(request, ANSWER_NOT_FOUND, NULL);
		break;
	case COUPON_ENDED:
		request_fail(request, ANSWER_ENDED, NULL);
		break;
	case COUPON_PAUSED:
		request_fail(request, ANSWER_PAUSED, NULL);
		break;
	case COUPON_PUBLISHED:
		request_fail(request, ANSWER_UNAVAILABLE, "the coupon is published, but not yet loaded");
		break;
	case COUPON_LOOKUP_FAILED:
	case COUPON_LOOKUP_BUSY:
		request_fail(request, ANSWER_UNAVAILABLE, NULL);
		break;
	}
	query_free(query);
}

static void member_time(cJSON *object, const char *name, int64_t time_ms)
{
	char text[CLOCK_RFC3339_SIZE];

	if (time_ms > 0)
		cJSON_AddStringToObject(object, name, clock_rfc3339(time_ms, text));
}

/* `fields`: status, total, stock, limit, begin, end, now. */
static void coupon_answer_fields(struct request *request, char *const fields[7])
{
	int64_t begin_ms = strtoll(fields[4], NULL, 10), end_ms = strtoll(fields[5], NULL, 10);
	int64_t now_ms = strtoll(fields[6], NULL, 10);
	const char *state = "open";
	cJSON *object = cJSON_CreateObject();
	char id[ID_SIZE];

	check(object != NULL);
	if (strcmp(fields[0], "closed") == 0 || (end_ms > 0 && now_ms >= end_ms))
		state = "ended";
	else if (strcmp(fields[0], "paused") == 0)
		state = "paused";
	else if (now_ms < begin_ms)
		state = "not_started";
	id_format(request->coupon, id);
	cJSON_AddStringToObject(object, "coupon", id);
	cJSON_AddStringToObject(object, "state", state);
	cJSON_AddNumberToObject(object, "total", (double)strtoll(fields[1], NULL, 10));
	cJSON_AddNumberToObject(object, "stock", (double)strtoll(fields[2], NULL, 10));
	cJSON_AddNumberToObject(object, "limit", (double)strtoll(fields[3], NULL, 10));
	member_time(object, "begin", begin_ms);
	member_time(object, "end", end_ms);
	request_answer_object(request, ANSWER_OK, NULL, object);
}

static void on_coupon_fields(void *context, const redisReply *reply)
{
	struct status_query *query = context;
	char *fields[7];

	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 7) {
		request_fail(query->request, ANSWER_UNAVAILABLE, "Redis is away");
		query_free(query);
		return;
	}
	for (size_t i = 0; i < 7; i++) {
		fields[i] = reply->element[i]->str;
		if (fields[i])
			continue;
		if (lookup_coupon(query->parts->lookup, query->request->coupon, on_coupon_row, query)) {
			request_fail(query->request, ANSWER_BUSY, NULL);
			query_free(query);
		}
		return;
	}
	coupon_answer_fields(query->request, fields);
	query_free(query);
}

void coupon_answer_state(const struct status_parts *parts, struct request *request)
{
	redis_pool_coupon(parts->redis, request->coupon, on_coupon_fields, query_new(parts, request));
}
