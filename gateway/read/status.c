#include "gateway/read/status.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/number.h"
#include "common/redis/redis.h"
#include "coupon/slot.h"
#include "gateway/admit/coupon_table.h"

#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define NOT_LOADED_TEXT "the coupon is published but not yet loaded into Redis"

/* One request between its steps. */
struct query {
	const struct status_parts *parts;
	struct request *request;
	/* For `status`: */
	int redis_answered;
	/* by Redis and PostgreSQL, a receive that neither of them holds was not accepted */
	int complete;
	int in_doubt;  /* at the start: a request may have taken effect after Redis was read */
	char *records; /* the user's, from Redis; NULL: none */
	struct redis_link *link;        /* to Redis; NULL: none */
	char run_id[REDIS_RUN_ID_SIZE]; /* the process that had the records */
	/* For `coupon`: */
	cJSON *object; /* the reply, before the discount is known */
	struct discount_asker asker;
};

/* Each takes the query and its request. */
static void query_answer(struct query *query, enum answer answer, const char *status, cJSON *object)
{
	request_answer_object(query->request, answer, status, object);
	free(query->records);
	free(query);
}

/* The answer names a receive that only Redis has. */
static void query_answer_in_flight(struct query *query, const char *status, cJSON *object)
{
	struct replicas *replicas = query->parts->replicas;

	if (!replicas) {
		query_answer(query, ANSWER_OK, status, object);
		return;
	}
	replicas_hold(replicas, query->run_id,
		      &(struct held){
			      .request = query->request, .status = status, .object = object });
	free(query->records);
	free(query);
}

static void query_fail(struct query *query, enum answer answer, const char *message)
{
	request_fail(query->request, answer, message);
	free(query->records);
	free(query);
}

static void coupon_look_up(struct query *query, struct lookup *lookup, enum lookup_query what,
			   lookup_fn *done)
{
	if (lookup_ask(lookup, what, POSTGRES_ARGUMENTS(postgres_number(query->request->coupon)),
		       done, query))
		query_fail(query, ANSWER_BUSY, NULL);
}

/* `status` */

static int same_receive(const struct receive *receive, const struct slot *record)
{
	return receive->index == record->index &&
	       memcmp(&receive->batch, &record->batch, sizeof(record->batch)) == 0;
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
static int none_is_final(const struct query *query)
{
	return query->complete && !query->in_doubt &&
	       !in_doubt(query->parts, query->request->coupon);
}

/* A receive that Redis has and PostgreSQL has not. */
static cJSON *in_flight_object(const struct query *query, const struct slot *record)
{
	const struct receive receive = { .coupon = query->request->coupon,
					 .user = query->request->user,
					 .batch = record->batch,
					 .index = record->index };
	cJSON *object = checked(cJSON_CreateObject());

	member_receive(object, &receive, record->number);
	return object;
}

/* PostgreSQL has not answered, or what it answered may not be true any more. */
static void fail_by_lookup(struct query *query)
{
	const struct lookup *lookup = query->parts->lookup;

	query_fail(query, ANSWER_UNAVAILABLE,
		   lookup_is_connected(lookup) && lookup_trouble(lookup)
			   ? "PostgreSQL may have been put back to an earlier moment: "
			     "the outcome is unknown"
			   : "PostgreSQL is unreachable: the outcome cannot be looked up");
}

/* A receive that PostgreSQL has; its state is a member, or is answered. */
static cJSON *outcome_object(const struct receive *receive, const PGresult *rows, int row,
			     int has_state)
{
	cJSON *object = checked(cJSON_CreateObject());

	member_receive(object, receive, (int)column_number(rows, row, "slot"));
	if (has_state)
		member_column(object, rows, row, "state");
	member_column(object, rows, row, "reason");
	member_column(object, rows, row, "valid_from");
	member_column(object, rows, row, "valid_to");
	member_raw(object, rows, row, "use");
	return object;
}

static void on_receive(void *context, const PGresult *rows, int row, int n)
{
	struct query *query = context;
	const char *at = query->records;
	struct slot record;
	cJSON *object;

	if (!rows) {
		fail_by_lookup(query);
		return;
	}
	if (n > 0) {
		object = outcome_object(&query->request->receive, rows, row, 0);
		if (strcmp(column_text(rows, row, "state"), "rejected") == 0) {
			cJSON_AddStringToObject(object, "message", answer_text(ANSWER_REJECTED));
			query_answer(query, ANSWER_REJECTED, NULL, object);
		} else {
			query_answer(query, ANSWER_OK, "issued", object);
		}
		return;
	}

	/* PostgreSQL does not have it: the answer is the state in Redis. */
	while (slot_next(&at, &record) == 0) {
		if (same_receive(&query->request->receive, &record)) {
			query_answer_in_flight(query, "accepted", in_flight_object(query, &record));
			return;
		}
	}
	if (!query->redis_answered) {
		query_fail(query, ANSWER_UNAVAILABLE,
			   "Redis is unreachable: whether the receive exists is unknown");
		return;
	}
	object = checked(cJSON_CreateObject());
	cJSON_AddBoolToObject(object, "final", none_is_final(query));
	cJSON_AddStringToObject(object, "message", "there is no such receive");
	query_answer(query, ANSWER_NOT_FOUND, NULL, object);
}

static void on_user(void *context, const PGresult *rows, int first, int n)
{
	struct query *query = context;
	const struct request *request = query->request;
	const char *at = query->records;
	cJSON *object, *receives, *member;
	struct receive receive;
	struct slot record;
	int in_flight = 0;
	char id[ID_SIZE];

	if (!rows) {
		fail_by_lookup(query);
		return;
	}
	if (!query->redis_answered) {
		query_fail(query, ANSWER_UNAVAILABLE,
			   "Redis is unreachable: receives in flight cannot be seen");
		return;
	}
	object = checked(cJSON_CreateObject());
	id_format(request->coupon, id);
	cJSON_AddStringToObject(object, "coupon", id);
	cJSON_AddStringToObject(object, "user", request->user.text);
	receives = cJSON_AddArrayToObject(object, "receives");

	for (int row = first; row < first + n; row++) {
		row_receive(rows, row, request->coupon, &request->user, &receive);
		cJSON_AddItemToArray(receives, outcome_object(&receive, rows, row, 1));
	}
	/* The receives in flight are those that Redis has and PostgreSQL has not. */
	while (slot_next(&at, &record) == 0) {
		int found = 0;

		for (int row = first; row < first + n && !found; row++) {
			row_receive(rows, row, request->coupon, &request->user, &receive);
			found = same_receive(&receive, &record);
		}
		if (found)
			continue;
		member = in_flight_object(query, &record);
		cJSON_AddStringToObject(member, "state", "accepted");
		cJSON_AddItemToArray(receives, member);
		in_flight++;
	}

	if (cJSON_GetArraySize(receives) == 0)
		cJSON_AddBoolToObject(object, "final", none_is_final(query));
	if (in_flight > 0)
		query_answer_in_flight(query, NULL, object);
	else
		query_answer(query, ANSWER_OK, NULL, object);
}

static void outcome_look_up(struct query *query)
{
	const struct request *request = query->request;
	const struct receive any = { .coupon = request->coupon, .user = request->user };
	int rc;

	if (request->by_receive)
		rc = lookup_receive(query->parts->lookup, LOOKUP_RECEIVE, &request->receive,
				    on_receive, query);
	else
		rc = lookup_receive(query->parts->lookup, LOOKUP_USER, &any, on_user, query);
	if (rc)
		query_fail(query, ANSWER_BUSY, NULL);
}

/*
 * Redis does not hold the coupon. Nothing is in flight if the coupon was never loaded, or if the
 * keeper found it settled.
 */
static void on_missing(void *context, const PGresult *rows)
{
	struct query *query = context;
	int row = rows ? row_of_coupon(rows, query->request->coupon) : -1;

	query->complete = rows &&
			  (row < 0 || strcmp(column_text(rows, row, "generation"), "0") == 0 ||
			   strcmp(column_text(rows, row, "settled"), "t") == 0);
	outcome_look_up(query);
}

static void on_records(void *context, const redisReply *reply)
{
	struct query *query = context;
	const char *at, *state;
	struct slot record;
	int missing = 0;

	--*query->parts->in_redis;
	if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
		query->redis_answered = 1;
		snprintf(query->run_id, sizeof(query->run_id), "%s",
			 redis_link_handshake(query->link)->run_id);
		if (reply->element[0]->type == REDIS_REPLY_STRING)
			check((query->records = strdup(reply->element[0]->str)) != NULL);

		/* What follows a record that is not what issue.lua writes is unknown. */
		at = query->records;
		while (slot_next(&at, &record) == 0)
			;
		state = reply->element[1]->type == REDIS_REPLY_STRING ? reply->element[1]->str : "";
		query->complete = strcmp(state, "complete") == 0 && at == NULL;

		missing = strcmp(state, "missing") == 0;
		if (missing || strcmp(state, "behind") == 0)
			admission_refused(query->parts->admission, query->request->coupon);
	}
	if (missing)
		coupon_look_up(query, query->parts->lookup, LOOKUP_STATUS_COUPON, on_missing);
	else
		outcome_look_up(query);
}

/* `coupon` */

enum answer coupon_row_answer(const PGresult *rows, int64_t coupon, int *is_published)
{
	int row = rows ? row_of_coupon(rows, coupon) : -1;
	const char *status;
	int64_t end_ms;

	*is_published = 0;
	if (!rows)
		return ANSWER_UNAVAILABLE;
	status = row < 0 ? "draft" : column_text(rows, row, "status");
	if (strcmp(status, "draft") == 0)
		return ANSWER_NOT_FOUND; /* clients cannot see drafts */
	end_ms = column_number(rows, row, "end_ms");
	if (strcmp(status, "closed") == 0 ||
	    (end_ms > 0 && end_ms <= column_number(rows, row, "now_ms")))
		return ANSWER_ENDED;
	*is_published = strcmp(status, "paused") != 0;
	return *is_published ? ANSWER_UNAVAILABLE : ANSWER_PAUSED;
}

void coupon_row_refuse(struct request *request, const PGresult *rows)
{
	int is_published;
	enum answer answer = coupon_row_answer(rows, request->coupon, &is_published);

	request_fail(request, answer, is_published ? NOT_LOADED_TEXT : NULL);
}

static void on_coupon_row(void *context, const PGresult *rows)
{
	struct query *query = context;

	coupon_row_refuse(query->request, rows);
	free(query->records);
	free(query);
}

/* What Redis has, in the order in which coupon_state.lua returns it. */
enum field { STATUS, TOTAL, STOCK, LIMIT, BEGIN, END, VERSION, NOW, FIELDS_N };

static int64_t field_number(const redisReply *reply, enum field field)
{
	return strtoll(reply->element[field]->str, NULL, 10);
}

static void on_discount(void *context, const cJSON *members)
{
	struct query *query = context;

	discount_members_add(query->object, members);
	query_answer(query, ANSWER_OK, NULL, query->object);
}

void coupon_state_read(const redisReply *reply, struct redis_link *link, struct coupon_state *state)
{
	static const struct {
		const char *status, *message;
	} withheld[] = {
		{ "behind", "Redis has an older state of the coupon than this gateway has seen" },
		{ "unverified", "the coupon is being compared with PostgreSQL" },
		{ "counting", "Redis lost data of the coupon: its stock is being recounted" },
	};
	const char *status;

	*state = (struct coupon_state){ .state = "open" };
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != FIELDS_N) {
		state->why = "Redis is unreachable";
		return;
	}
	for (size_t i = 0; i < FIELDS_N; i++) {
		if (!reply->element[i]->str) {
			state->is_missing = 1;
			state->why = NOT_LOADED_TEXT;
			return;
		}
	}
	status = reply->element[STATUS]->str;
	if (strcmp(status, "unverified") == 0)
		redis_link_process_read(link);
	for (size_t i = 0; i < sizeof(withheld) / sizeof(withheld[0]); i++) {
		if (strcmp(status, withheld[i].status) == 0) {
			state->why = withheld[i].message;
			state->is_behind = i == 0;
			return;
		}
	}

	state->total = field_number(reply, TOTAL);
	state->stock = field_number(reply, STOCK);
	state->limit = field_number(reply, LIMIT);
	state->begin_ms = field_number(reply, BEGIN);
	state->end_ms = field_number(reply, END);
	state->version = field_number(reply, VERSION);
	state->now_ms = field_number(reply, NOW);
	if (strcmp(status, "closed") == 0 || (state->end_ms > 0 && state->now_ms >= state->end_ms))
		state->state = "ended";
	else if (strcmp(status, "paused") == 0)
		state->state = "paused";
	else if (state->now_ms < state->begin_ms)
		state->state = "not_started";
}

cJSON *coupon_state_object(int64_t coupon, const struct coupon_state *state)
{
	cJSON *object = checked(cJSON_CreateObject());
	char id[ID_SIZE];

	id_format(coupon, id);
	cJSON_AddStringToObject(object, "coupon", id);
	cJSON_AddStringToObject(object, "state", state->state);
	cJSON_AddNumberToObject(object, "total", (double)state->total);
	cJSON_AddNumberToObject(object, "stock", (double)state->stock);
	cJSON_AddNumberToObject(object, "limit", (double)state->limit);
	member_time(object, "begin", state->begin_ms);
	member_time(object, "end", state->end_ms);
	return object;
}

const char *coupon_refusal(const char *state, int64_t stock, int64_t limit, int taken)
{
	if (strcmp(state, "paused") == 0)
		return answer_status(ANSWER_PAUSED);
	if (strcmp(state, "ended") == 0)
		return answer_status(ANSWER_ENDED);
	if (strcmp(state, "not_started") == 0)
		return answer_status(ANSWER_NOT_STARTED);
	if (stock <= 0)
		return answer_status(ANSWER_OUT_OF_STOCK);
	return taken >= limit ? answer_status(ANSWER_LIMIT_REACHED) : NULL;
}

static void on_coupon_fields(void *context, const redisReply *reply)
{
	struct query *query = context;
	struct coupon_state state;

	--*query->parts->in_redis;
	coupon_state_read(reply, query->link, &state);
	if (state.is_missing || state.is_behind)
		admission_refused(query->parts->admission, query->request->coupon);
	if (state.is_missing) {
		coupon_look_up(query, query->parts->reads, LOOKUP_COUPON, on_coupon_row);
		return;
	}
	if (state.why) {
		query_fail(query, ANSWER_UNAVAILABLE, state.why);
		return;
	}

	query->object = coupon_state_object(query->request->coupon, &state);
	query->asker.version = state.version;
	discounts_ask(query->parts->discounts, query->request->coupon, &query->asker);
}

/* As in a call, the scripts get the highest that this process has seen of the coupon. */
static void script_ask(const struct status_parts *parts, struct redis_link *link, int64_t coupon,
		       const struct user_id *user, redis_done_fn *done, void *context)
{
	char keys[2][COUPON_KEY_SIZE], generation_text[NUMBER_SIZE], seq_text[NUMBER_SIZE];
	const char *argv[9];
	int64_t generation, seq;
	int n = 0;

	admission_seen(parts->admission, coupon, &generation, &seq);
	argv[n++] = "EVAL";
	argv[n++] = user ? lua_user_state : lua_coupon_state;
	argv[n++] = user ? "2" : "1";
	argv[n++] = coupon_key(coupon, COUPON_KEY_COUPON, keys[0]);
	if (user) {
		argv[n++] = coupon_key(coupon, COUPON_KEY_USERS, keys[1]);
		argv[n++] = user->text;
	}
	argv[n++] = link ? redis_link_handshake(link)->lease_argument : "";
	argv[n++] = number_text(generation, generation_text);
	argv[n++] = number_text(seq, seq_text);
	redis_pool_query_over(link, n, argv, done, context);
}

void coupon_state_ask(const struct status_parts *parts, struct redis_link *link, int64_t coupon,
		      redis_done_fn *done, void *context)
{
	script_ask(parts, link, coupon, NULL, done, context);
}

void status_answer(const struct status_parts *parts, struct request *request)
{
	struct redis_link *link = redis_pool_pick(parts->redis);
	struct query *query = checked(calloc(1, sizeof(*query)));
	int is_status = request->op == OP_STATUS;

	*query = (struct query){ .parts = parts,
				 .request = request,
				 .link = link,
				 .in_doubt = is_status && in_doubt(parts, request->coupon),
				 .asker = { .done = on_discount, .context = query } };
	script_ask(parts, link, request->coupon, is_status ? &request->user : NULL,
		   is_status ? on_records : on_coupon_fields, query);
}
