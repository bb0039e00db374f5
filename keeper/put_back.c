#include "keeper/put_back.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_MS 2000  /* between two passes over all coupons */
#define CLAIM_MS 3000 /* so long a Redis without an id is left to the gateways */
#define SCAN_COUNT "1000"
#define KEY_HEAD "coupon:{"

static void relation_set(struct put_back *put_back, enum relation relation)
{
	int was_foreign = put_back->relation == RELATION_FOREIGN;

	if (relation == RELATION_FOREIGN && !was_foreign)
		log_error("installation_differs", LOG_S("postgresql", put_back->installation),
			  LOG_S("redis", put_back->copy.installation),
			  LOG_S("why", RELATION_FOREIGN_TEXT "; nothing is changed"),
			  LOG_S("mend", "correct DATABASE_URL or REDIS_URL, or see couponctl "
					"installation"));
	else if (relation == RELATION_OWN && was_foreign)
		log_info("installation_agrees", LOG_S("installation", put_back->installation));
	put_back->relation = relation;
}

/* Redis has no id. The gateways get some time, then it gets the one of this PostgreSQL. */
static void unclaimed_step(struct put_back *put_back, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();

	if (put_back->unclaimed_ms == 0)
		put_back->unclaimed_ms = now_ms;
	if (now_ms - put_back->unclaimed_ms < CLAIM_MS)
		return;
	if (changes_claim(context->redis, put_back->installation, NULL) == RELATION_OWN)
		log_info("installation_claimed", LOG_S("installation", put_back->installation));
}

static void behind_set(struct put_back *put_back, int64_t transactions)
{
	if (transactions > 0 && !put_back->is_behind)
		log_error("postgresql_behind", LOG_I("transactions", transactions),
			  LOG_S("why", "PostgreSQL was put back to an earlier moment"),
			  LOG_S("mend", "couponctl recover"));
	else if (transactions == 0 && put_back->is_behind)
		log_info("postgresql_recovered", LOG_S("by", "couponctl recover"));
	if (!put_back->is_behind)
		put_back->hold_due_ms = 0;
	put_back->is_behind = transactions > 0;
}

int put_back_look(struct put_back *put_back, struct keeper_context *context)
{
	const struct changes *copy = &put_back->copy;
	struct changes changes;
	PGresult *rows;
	int64_t transactions;

	rows = keeper_database_query(context->database, sql_query_change_counts, 0, NULL);
	if (!rows)
		return -1;
	changes_take(&changes, rows);
	if (strcmp(put_back->installation, changes.installation) != 0)
		put_back->installations_n++;
	memcpy(put_back->installation, changes.installation, INSTALLATION_SIZE);
	put_back->fence = PQntuples(rows) > 0 ? strtoll(PQgetvalue(rows, 0, 2), NULL, 10) : 0;
	PQclear(rows);
	relation_set(put_back, changes_relate(put_back->relation, &changes, copy));
	if (put_back->relation == RELATION_UNCLAIMED)
		unclaimed_step(put_back, context);
	else
		put_back->unclaimed_ms = 0;
	if (put_back->relation != RELATION_OWN)
		return 0;
	transactions = changes_behind(&changes, copy);
	behind_set(put_back, transactions);
	return transactions > 0 ? 0 : changes_copy_raise(context->redis, &changes, copy);
}

/* The coupon whose hash has this name; 0: it is another key. */
static int64_t coupon_of(const char *name)
{
	size_t len = strlen(name), head = strlen(KEY_HEAD);
	int64_t coupon;

	if (len <= head + 1 || id_parse(name + head, len - head - 1, &coupon))
		return 0;
	return coupon;
}

/* The fence in PostgreSQL may be below that of the coupon, so the coupon's own is used. */
static void coupon_hold(struct keeper_context *context, int64_t coupon)
{
	char key[COUPON_KEY_SIZE], fence[KEEPER_FENCE_SIZE], word[REDIS_WORD_SIZE];
	const char *hget[] = { "HGET", coupon_key(coupon, COUPON_KEY_COUPON, key), "fence" };
	const char *argv[] = { fence, "1" };
	int64_t own = context->fence;
	redisReply *reply = redis_client_call(context->redis, 3, hget);

	if (!reply)
		return;
	context->fence = redis_reply_number(reply);
	keeper_context_fence(context, fence);
	context->fence = own;
	freeReplyObject(reply);
	redis_word_take(redis_client_coupon_eval(context->redis, lua_hold, coupon,
						 COUPON_KEYS_ISSUE, 2, argv),
			word);
	if (strcmp(word, "held") != 0)
		log_warn("coupon_hold_failed", LOG_I("coupon", coupon), LOG_S("why", word));
}

int put_back_hold(struct put_back *put_back, struct keeper_context *context)
{
	char cursor[REDIS_CURSOR_SIZE] = "0";
	const char *scan[] = { "SCAN", cursor, "MATCH", KEY_HEAD "*}", "COUNT", SCAN_COUNT };

	if (clock_monotonic_ms() < put_back->hold_due_ms)
		return 0;
	do {
		redisReply *reply;

		if (keeper_context_goes_on(context))
			return -1;
		reply = redis_client_call(context->redis, 6, scan);
		if (!reply || !redis_reply_is_scan(reply)) {
			if (reply)
				freeReplyObject(reply);
			return -1;
		}
		snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
		for (size_t i = 0; i < reply->element[1]->elements; i++) {
			int64_t coupon = coupon_of(reply->element[1]->element[i]->str);

			if (coupon > 0)
				coupon_hold(context, coupon);
		}
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
	put_back->hold_due_ms = clock_monotonic_ms() + HOLD_MS;
	return redis_client_is_open(context->redis) ? 0 : -1;
}
