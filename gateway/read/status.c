#include "gateway/read/status.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/redis/redis.h"
#include "coupon/slot.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/read/row.h"

#include "embed.h"

#include <stdlib.h>
#include <string.h>

/* One status request between its steps. */
struct status_query {
	const struct status_parts *parts;
	struct request *request;
	int redis_answered;
	/* by Redis and PostgreSQL, a receive that neither of them holds was not accepted */
	int complete;
	int in_doubt;  /* at the start: a request may have taken effect after Redis was read */
	char *records; /* of the user, from Redis; NULL: none */
};

static int same_receive(const struct receive *receive, const struct slot *record)
{
	return receive->index == record->index &&
	       memcmp(&receive->batch, &record->batch, sizeof(record->batch)) == 0;
}

static void query_free(struct status_query *query)
{
	free(query->records);
	free(query);
}

/* Takes the query and its request. */
static void query_fail(struct status_query *query, enum answer answer, const char *message)
{
	request_fail(query->request, answer, message);
	query_free(query);
}

/* Whether a request for the coupon, in any process of this gateway, may still take effect. */
static int in_doubt(const struct status_parts *parts, int64_t coupon)
{
	return admission_in_doubt(parts->admission, coupon) ||
	       doubt_elsewhere(coupon, clock_monotonic_ms());
}

/*
 * Whether a receive that is absent now cannot appear later, as far as this gateway can
 * determine.
 */
static int none_is_final(const struct status_query *query)
{
	return query->complete && !query->in_doubt &&
	       !in_doubt(query->parts, query->request->coupon);
}

static void answer_none(struct status_query *query)
{
	struct request *request = query->request;
	cJSON *object;

	if (!query->redis_answered) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "Redis is unreachable: it is unknown whether there is such a receive");
		return;
	}
	object = cJSON_CreateObject();
	check(object != NULL);
	cJSON_AddBoolToObject(object, "final", none_is_final(query));
	cJSON_AddStringToObject(object, "message", "there is no such receive");
	request_answer_object(request, ANSWER_NOT_FOUND, NULL, object);
}

/* PostgreSQL does not hold the receive: answers with the state in Redis. */
static void answer_by_redis(struct status_query *query)
{
	const char *at = query->records;
	struct slot record;
	cJSON *object;

	while (slot_next(&at, &record) == 0) {
		if (!same_receive(&query->request->receive, &record))
			continue;
		object = cJSON_CreateObject();
		check(object != NULL);
		member_receive(object, &query->request->receive, record.number);
		request_answer_object(query->request, ANSWER_OK, "accepted", object);
		return;
	}
	answer_none(query);
}

/* PostgreSQL has not answered, or what it answered may not be true any more. */
static void fail_by_lookup(struct status_query *query)
{
	const struct lookup *lookup = query->parts->lookup;

	query_fail(query, ANSWER_UNAVAILABLE,
		   lookup_is_connected(lookup) && lookup_trouble(lookup)
			   ? "PostgreSQL may have been put back to an earlier moment: "
			     "the outcome is unknown"
			   : "PostgreSQL is unreachable: the outcome cannot be looked up");
}

static void on_receive(void *context, const PGresult *rows)
{
	struct status_query *query = context;
	struct request *request = query->request;
	cJSON *object;
	int rejected;

	if (!rows) {
		fail_by_lookup(query);
		return;
	}
	if (PQntuples(rows) == 0) {
		answer_by_redis(query);
		query_free(query);
		return;
	}
	rejected = strcmp(column_text(rows, 0, "state"), "rejected") == 0;
	object = cJSON_CreateObject();
	check(object != NULL);
	member_receive(object, &request->receive, (int)column_number(rows, 0, "slot"));
	member_column(object, rows, 0, "reason");
	member_column(object, rows, 0, "valid_from");
	member_column(object, rows, 0, "valid_to");
	if (rejected)
		cJSON_AddStringToObject(object, "message", answer_text(ANSWER_REJECTED));
	request_answer_object(request, rejected ? ANSWER_REJECTED : ANSWER_OK,
			      rejected ? NULL : "issued", object);
	query_free(query);
}

static void add_settled(cJSON *receives, const struct request *request, const PGresult *rows)
{
	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *object = cJSON_CreateObject();
		struct receive receive;

		check(object != NULL);
		row_receive(rows, row, request->coupon, &request->user, &receive);
		member_receive(object, &receive, (int)column_number(rows, row, "slot"));
		member_column(object, rows, row, "state");
		member_column(object, rows, row, "reason");
		member_column(object, rows, row, "valid_from");
		member_column(object, rows, row, "valid_to");
		cJSON_AddItemToArray(receives, object);
	}
}

/* The receives in flight: held by Redis and not by PostgreSQL. */
static void add_in_flight(cJSON *receives, const struct status_query *query, const PGresult *rows)
{
	const char *at = query->records;
	struct slot record;
	struct receive settled;

	while (slot_next(&at, &record) == 0) {
		struct receive receive = { .coupon = query->request->coupon,
					   .user = query->request->user,
					   .batch = record.batch,
					   .index = record.index };
		int found = 0;
		cJSON *object;

		for (int row = 0; row < PQntuples(rows) && !found; row++) {
			row_receive(rows, row, query->request->coupon, &query->request->user,
				    &settled);
			found = same_receive(&settled, &record);
		}
		if (found)
			continue;
		object = cJSON_CreateObject();
		check(object != NULL);
		member_receive(object, &receive, record.number);
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

	if (!rows) {
		fail_by_lookup(query);
		return;
	}
	if (!query->redis_answered) {
		query_fail(query, ANSWER_UNAVAILABLE,
			   "Redis is unreachable: receives in flight are unknown");
		return;
	}
	object = cJSON_CreateObject();
	check(object != NULL);
	id_format(request->coupon, id);
	cJSON_AddStringToObject(object, "coupon", id);
	cJSON_AddStringToObject(object, "user", request->user.text);
	receives = cJSON_AddArrayToObject(object, "receives");
	add_settled(receives, request, rows);
	add_in_flight(receives, query, rows);
	if (cJSON_GetArraySize(receives) == 0)
		cJSON_AddBoolToObject(object, "final", none_is_final(query));
	request_answer_object(request, ANSWER_OK, NULL, object);
	query_free(query);
}

static void outcome_look_up(struct status_query *query)
{
	struct request *request = query->request;
	int rc;

	if (request->by_receive)
		rc = lookup_receive(query->parts->lookup, LOOKUP_RECEIVE, &request->receive,
				    on_receive, query);
	else
		rc = lookup_ask(query->parts->lookup, LOOKUP_USER,
				POSTGRES_ARGUMENTS(postgres_number(request->coupon),
						   postgres_text(request->user.text)),
				on_user, query);
	if (rc)
		query_fail(query, ANSWER_BUSY, NULL);
}

/*
 * Redis does not hold the coupon. Nothing is in flight if the coupon was never loaded, or if the
 * keeper found it settled.
 */
static void on_missing(void *context, const PGresult *rows, int row)
{
	struct status_query *query = context;

	query->complete = rows &&
			  (row < 0 || strcmp(column_text(rows, row, "generation"), "0") == 0 ||
			   strcmp(column_text(rows, row, "settled"), "t") == 0);
	outcome_look_up(query);
}

static int is_text(const redisReply *reply, const char *text)
{
	return reply->type == REDIS_REPLY_STRING && strcmp(reply->str, text) == 0;
}

/* Whether the records are what issue.lua writes: what follows one that is not is unknown. */
static int records_readable(const char *records)
{
	struct slot record;

	while (slot_next(&records, &record) == 0)
		;
	return records == NULL;
}

static void on_records(void *context, const redisReply *reply)
{
	struct status_query *query = context;
	int missing = 0;

	--*query->parts->in_redis;
	if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
		query->redis_answered = 1;
		if (reply->element[0]->type == REDIS_REPLY_STRING)
			check((query->records = strdup(reply->element[0]->str)) != NULL);
		query->complete = is_text(reply->element[1], "complete") &&
				  records_readable(query->records);
		missing = is_text(reply->element[1], "missing");
		if (missing || is_text(reply->element[1], "behind"))
			admission_refused(query->parts->admission, query->request->coupon);
	}
	if (!missing) {
		outcome_look_up(query);
	} else if (lookup_coupon(query->parts->lookup, LOOKUP_STATUS_COUPON, query->request->coupon,
				 on_missing, query)) {
		request_fail(query->request, ANSWER_BUSY, NULL);
		query_free(query);
	}
}

void status_seen(const struct status_parts *parts, int64_t coupon, struct seen_text *seen)
{
	int64_t generation, seq;

	admission_seen(parts->admission, coupon, &generation, &seq);
	number_text(generation, seen->generation);
	number_text(seq, seen->seq);
}

static struct status_query *query_new(const struct status_parts *parts, struct request *request)
{
	struct status_query *query = calloc(1, sizeof(*query));

	check(query != NULL);
	query->parts = parts;
	query->request = request;
	query->in_doubt = in_doubt(parts, request->coupon);
	return query;
}

void status_answer(const struct status_parts *parts, struct request *request)
{
	struct redis_link *link = redis_pool_pick(parts->redis);
	char keys[2][COUPON_KEY_SIZE];
	struct seen_text seen;
	const char *argv[] = { "EVAL",
			       lua_user_state,
			       "2",
			       coupon_key(request->coupon, COUPON_KEY_COUPON, keys[0]),
			       coupon_key(request->coupon, COUPON_KEY_USERS, keys[1]),
			       request->user.text,
			       link ? redis_link_run_id(link) : "",
			       seen.generation,
			       seen.seq };

	status_seen(parts, request->coupon, &seen);
	redis_pool_query(link, 9, argv, on_records, query_new(parts, request));
}
