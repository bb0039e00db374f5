#include "gateway/claim/code.h"

#include "common/check.h"
#include "coupon/slot.h"
#include "gateway/claim/claim.h"

#include <stdlib.h>
#include <string.h>

#define SETS_REVOKED "*" /* in coupon:{ID}:codes, if a whole set or a word is: lua/issue.lua */

enum owner {
	OWNER_UNREAD, /* Redis did not say */
	OWNER_NONE,
	OWNER_SOMEBODY,
	OWNER_REVOKED /* nobody can have it */
};

/* One request between its steps. */
struct query {
	const struct status_parts *parts;
	struct request *request;
	struct redis_link *link;
	char code[RECEIVE_CODE_MAX + 1];
	int64_t end_ms;  /* of the code; 0: as long as the campaign */
	int waiting;     /* replies */
	int taken;       /* slots that the user has; -1: Redis did not say */
	struct slot own; /* the one that the user has by this code; its number 0: none */
	enum owner owner;
	struct coupon_state state;
	cJSON *object; /* the reply, before the discount is known */
	struct discount_asker asker;
};

static void query_fail(struct query *query, enum answer answer, const char *message)
{
	request_fail(query->request, answer, message);
	free(query);
}

static void part_end(struct query *query);

static void on_slots(void *context, const redisReply *reply)
{
	struct query *query = context;
	const char *at = NULL, *code;
	struct slot slot;

	query->taken = slots_count(reply);
	if (query->taken > 0)
		at = reply->str;
	while (slot_next(&at, &slot) == 0) {
		size_t len = slot_code(&slot, &code);

		if (len == strlen(query->code) && memcmp(code, query->code, len) == 0)
			query->own = slot;
	}
	query->own.tail = NULL; /* it is the reply's */
	part_end(query);
}

/* The fields of the code, of its set, and of all sets. */
static void on_owner(void *context, const redisReply *reply)
{
	struct query *query = context;

	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
		query->owner = OWNER_UNREAD;
	else if (reply->element[0]->type == REDIS_REPLY_STRING)
		query->owner = reply->element[0]->len > 0 ? OWNER_SOMEBODY : OWNER_REVOKED;
	else if (reply->element[1]->type == REDIS_REPLY_STRING &&
		 reply->element[2]->type == REDIS_REPLY_STRING)
		query->owner = OWNER_REVOKED;
	else
		query->owner = OWNER_NONE;
	part_end(query);
}

static void on_state(void *context, const redisReply *reply)
{
	struct query *query = context;

	coupon_state_read(reply, query->link, &query->state);
	part_end(query);
}

static void on_discount(void *context, const cJSON *members)
{
	struct query *query = context;

	discount_members_add(query->object, members);
	request_answer_object(query->request, ANSWER_OK, NULL, query->object);
	free(query);
}

static void on_row(void *context, const PGresult *rows)
{
	struct query *query = context;

	coupon_row_refuse(query->request, rows);
	free(query);
}

static void part_end(struct query *query)
{
	const struct coupon_state *state = &query->state;
	struct request *request = query->request;
	const char *why;
	int left;

	if (--query->waiting > 0)
		return;
	--*query->parts->in_redis;
	if (state->is_missing || state->is_behind)
		admission_refused(query->parts->admission, request->coupon);
	if (state->is_missing) {
		if (lookup_ask(query->parts->reads, LOOKUP_COUPON,
			       POSTGRES_ARGUMENTS(postgres_number(request->coupon)), on_row, query))
			query_fail(query, ANSWER_BUSY, NULL);
		return;
	}
	if (state->why || query->taken < 0 || query->owner == OWNER_UNREAD) {
		query_fail(query, ANSWER_UNAVAILABLE,
			   state->why ? state->why : "Redis is unreachable");
		return;
	}
	if (query->owner == OWNER_REVOKED) {
		claim_answered(request, ANSWER_CODE_INVALID);
		query_fail(query, ANSWER_CODE_INVALID, NULL);
		return;
	}

	if (query->owner == OWNER_SOMEBODY || request->is_used)
		why = answer_status(ANSWER_CODE_USED);
	else if (query->end_ms && state->now_ms >= query->end_ms)
		why = answer_status(ANSWER_CODE_EXPIRED);
	else
		why = coupon_refusal(state->state, state->stock, state->limit, query->taken);
	left = (int)state->limit - query->taken;
	query->object = coupon_state_object(request->coupon, state);
	member_time(query->object, "code_end", query->end_ms);
	cJSON_AddNumberToObject(query->object, "taken", query->taken);
	cJSON_AddNumberToObject(query->object, "left", left > 0 ? left : 0);
	cJSON_AddBoolToObject(query->object, "claimable", !why);
	if (why)
		cJSON_AddStringToObject(query->object, "why", why);
	if (query->own.number) {
		const struct receive receive = { .coupon = request->coupon,
						 .user = request->user,
						 .batch = query->own.batch,
						 .index = query->own.index };

		member_receive(query->object, &receive, query->own.number);
	}
	query->asker.version = state->version;
	discounts_ask(query->parts->discounts, request->coupon, &query->asker);
}

void code_answer(const struct status_parts *parts, struct request *request)
{
	struct redis_link *link = redis_pool_pick(parts->redis);
	struct query *query = checked(calloc(1, sizeof(*query)));
	char users[COUPON_KEY_SIZE], codes[COUPON_KEY_SIZE], set[RECEIVE_CODE_MAX + 1];
	const char *hget[] = { "HGET", users, request->user.text },
		   *hmget[] = { "HMGET", codes, query->code, set, SETS_REVOKED };

	query->parts = parts;
	query->request = request;
	query->link = link;
	query->waiting = 3;
	query->asker = (struct discount_asker){ .done = on_discount, .context = query };
	query->end_ms = request_code_found(request, query->code);
	snprintf(set, sizeof(set), "%.*s", (int)strcspn(query->code, "."), query->code);
	coupon_key(request->coupon, COUPON_KEY_USERS, users);
	coupon_key(request->coupon, COUPON_KEY_CODES, codes);

	/* The last reply ends the query. */
	redis_pool_query_over(link, 3, hget, on_slots, query);
	redis_pool_query_over(link, 5, hmget, on_owner, query);
	coupon_state_ask(parts, link, request->coupon, on_state, query);
}
