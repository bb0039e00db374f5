#include "gateway/read/coupon_answer.h"

#include "common/check.h"
#include "common/clock.h"
#include "gateway/read/row.h"

#include <stdlib.h>
#include <string.h>

/* One `coupon` request between its steps. */
struct coupon_query {
	const struct status_parts *parts;
	struct request *request;
	cJSON *object; /* the reply, before the offer is known */
};

enum coupon_state coupon_state_of(const PGresult *rows, int row)
{
	const char *status;
	int64_t end_ms, now_ms;

	if (!rows)
		return COUPON_LOOKUP_FAILED;
	if (row < 0)
		return COUPON_ABSENT;
	status = column_text(rows, row, "status");
	end_ms = strtoll(column_text(rows, row, "end_ms"), NULL, 10);
	now_ms = strtoll(column_text(rows, row, "now_ms"), NULL, 10);
	if (strcmp(status, "draft") == 0)
		return COUPON_ABSENT; /* clients cannot see drafts */
	if (strcmp(status, "closed") == 0 || (end_ms > 0 && end_ms <= now_ms))
		return COUPON_ENDED;
	return strcmp(status, "paused") == 0 ? COUPON_PAUSED : COUPON_PUBLISHED;
}

static void on_coupon_row(void *context, const PGresult *rows, int row)
{
	struct coupon_query *query = context;
	struct request *request = query->request;

	switch (coupon_state_of(rows, row)) {
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
		request_fail(request, ANSWER_UNAVAILABLE,
			     "the coupon is published, but not yet loaded");
		break;
	case COUPON_LOOKUP_FAILED:
	case COUPON_LOOKUP_BUSY:
		request_fail(request, ANSWER_UNAVAILABLE, NULL);
		break;
	}
	free(query);
}

static void member_time(cJSON *object, const char *name, int64_t time_ms)
{
	char text[CLOCK_RFC3339_SIZE];

	if (time_ms > 0)
		cJSON_AddStringToObject(object, name, clock_rfc3339(time_ms, text));
}

/* What Redis has, in the order in which coupon_state.lua returns it. */
enum field { STATUS, TOTAL, STOCK, LIMIT, BEGIN, END, VERSION, NOW, FIELDS_N };

static int64_t field_number(char *const fields[FIELDS_N], enum field field)
{
	return strtoll(fields[field], NULL, 10);
}

static cJSON *fields_object(int64_t coupon, char *const fields[FIELDS_N])
{
	int64_t begin_ms = field_number(fields, BEGIN), end_ms = field_number(fields, END);
	int64_t now_ms = field_number(fields, NOW);
	const char *state = "open";
	cJSON *object = cJSON_CreateObject();
	char id[ID_SIZE];

	check(object != NULL);
	if (strcmp(fields[STATUS], "closed") == 0 || (end_ms > 0 && now_ms >= end_ms))
		state = "ended";
	else if (strcmp(fields[STATUS], "paused") == 0)
		state = "paused";
	else if (now_ms < begin_ms)
		state = "not_started";
	id_format(coupon, id);
	cJSON_AddStringToObject(object, "coupon", id);
	cJSON_AddStringToObject(object, "state", state);
	cJSON_AddNumberToObject(object, "total", (double)field_number(fields, TOTAL));
	cJSON_AddNumberToObject(object, "stock", (double)field_number(fields, STOCK));
	cJSON_AddNumberToObject(object, "limit", (double)field_number(fields, LIMIT));
	member_time(object, "begin", begin_ms);
	member_time(object, "end", end_ms);
	return object;
}

static void on_offer(void *context, const cJSON *members)
{
	struct coupon_query *query = context;
	const cJSON *member;

	cJSON_ArrayForEach(member, members)
		cJSON_AddItemToObject(query->object, member->string, cJSON_Duplicate(member, 1));
	if (!members)
		check(cJSON_AddTrueToObject(query->object, "partial"));
	request_answer_object(query->request, ANSWER_OK, NULL, query->object);
	free(query);
}

static void on_missing(struct coupon_query *query)
{
	admission_refused(query->parts->admission, query->request->coupon);
	if (lookup_coupon(query->parts->reads, LOOKUP_COUPONS, query->request->coupon,
			  on_coupon_row, query)) {
		request_fail(query->request, ANSWER_BUSY, NULL);
		free(query);
	}
}

static void on_coupon_fields(void *context, const redisReply *reply)
{
	struct coupon_query *query = context;
	char *fields[FIELDS_N];

	--*query->parts->in_redis;
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != FIELDS_N) {
		request_fail(query->request, ANSWER_UNAVAILABLE, "Redis is unreachable");
		free(query);
		return;
	}
	for (size_t i = 0; i < FIELDS_N; i++) {
		fields[i] = reply->element[i]->str;
		if (!fields[i]) {
			on_missing(query);
			return;
		}
	}
	if (strcmp(fields[STATUS], "behind") == 0) {
		admission_refused(query->parts->admission, query->request->coupon);
		request_fail(query->request, ANSWER_UNAVAILABLE,
			     "Redis is behind what was seen of the coupon");
	} else if (strcmp(fields[STATUS], "unverified") == 0) {
		request_fail(query->request, ANSWER_UNAVAILABLE,
			     "the coupon is being compared with PostgreSQL");
	} else if (strcmp(fields[STATUS], "counting") == 0) {
		request_fail(query->request, ANSWER_UNAVAILABLE,
			     "Redis lost data of the coupon: its stock is being counted");
	} else {
		query->object = fields_object(query->request->coupon, fields);
		offers_ask(query->parts->offers, query->request->coupon,
			   field_number(fields, VERSION), on_offer, query);
		return;
	}
	free(query);
}

void coupon_answer(const struct status_parts *parts, struct request *request)
{
	struct coupon_query *query = malloc(sizeof(*query));
	struct redis_read read = { .coupon = request->coupon };

	check(query != NULL);
	*query = (struct coupon_query){ .parts = parts, .request = request };
	admission_seen(parts->admission, request->coupon, &read.seen_generation, &read.seen_seq);
	redis_query_coupon(parts->redis, &read, on_coupon_fields, query);
}
