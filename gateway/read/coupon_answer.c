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

static void on_missing(struct coupon_query *query)
{
	admission_refused(query->parts->admission, query->request->coupon);
	if (lookup_coupon(query->parts->reads, query->request->coupon, on_coupon_row, query)) {
		request_fail(query->request, ANSWER_BUSY, NULL);
		free(query);
	}
}

static void on_coupon_fields(void *context, const redisReply *reply)
{
	struct coupon_query *query = context;
	char *fields[7];

	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 7) {
		request_fail(query->request, ANSWER_UNAVAILABLE, "Redis is unreachable");
		free(query);
		return;
	}
	for (size_t i = 0; i < 7; i++) {
		fields[i] = reply->element[i]->str;
		if (!fields[i]) {
			on_missing(query);
			return;
		}
	}
	if (strcmp(fields[0], "behind") == 0) {
		admission_refused(query->parts->admission, query->request->coupon);
		request_fail(query->request, ANSWER_UNAVAILABLE,
			     "Redis is behind what was seen of the coupon");
	} else if (strcmp(fields[0], "unverified") == 0) {
		request_fail(query->request, ANSWER_UNAVAILABLE,
			     "the coupon is being compared with PostgreSQL");
	} else if (strcmp(fields[0], "counting") == 0) {
		request_fail(query->request, ANSWER_UNAVAILABLE,
			     "Redis lost data of the coupon: its stock is being counted");
	} else {
		coupon_answer_fields(query->request, fields);
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
