#include "keeper/put_back.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "embed.h"
#include "keeper/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT "1000"
#define KEY_HEAD "coupon:{"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static struct changes published;
static int64_t published_ms;
static atomic_int published_relation, published_installations_n;

int put_back_copy_read(struct keeper_context *context, struct changes *copy)
{
	int64_t now_ms = clock_monotonic_ms();

	if (changes_copy_read(copy, context->redis))
		return -1;
	pthread_mutex_lock(&mutex);
	published = *copy;
	published_ms = now_ms;
	pthread_mutex_unlock(&mutex);
	return 0;
}

int64_t put_back_copy(struct changes *copy)
{
	int64_t read_ms;

	pthread_mutex_lock(&mutex);
	*copy = published;
	read_ms = published_ms;
	pthread_mutex_unlock(&mutex);
	return read_ms;
}

enum relation put_back_relation(void)
{
	return (enum relation)atomic_load(&published_relation);
}

int put_back_installations_n(void)
{
	return atomic_load(&published_installations_n);
}

static void relation_set(struct put_back *put_back, enum relation relation,
			 const struct changes *copy)
{
	int was_foreign = put_back->relation == RELATION_FOREIGN;

	if (relation == RELATION_FOREIGN && !was_foreign)
		log_error("installation_differs", LOG_S("postgresql", put_back->installation),
			  LOG_S("redis", copy->installation),
			  LOG_S("why", RELATION_FOREIGN_TEXT "; nothing is changed"),
			  LOG_S("mend", "correct DATABASE_URL or REDIS_URL, or see couponctl "
					"installation"));
	else if (relation == RELATION_OWN && was_foreign)
		log_info("installation_agrees", LOG_S("installation", put_back->installation));
	put_back->relation = relation;
	atomic_store(&published_relation, (int)relation);
	keeper_metrics_set(KEEPER_METRIC_FOREIGN, relation == RELATION_FOREIGN);
}

/* Redis has no id. The gateways get some time, then it gets the one of this PostgreSQL. */
static void unclaimed_step(struct put_back *put_back, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();

	if (put_back->unclaimed_ms == 0)
		put_back->unclaimed_ms = now_ms;
	if (now_ms - put_back->unclaimed_ms < PUT_BACK_CLAIM_MS)
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
	keeper_metrics_set(KEEPER_METRIC_BEHIND, put_back->is_behind);
}

int put_back_look(struct put_back *put_back, struct keeper_context *context)
{
	struct changes copy, changes;
	PGresult *rows;
	int64_t transactions;

	/* First the copy: it must not be newer than what it is compared with. */
	if (put_back_copy_read(context, &copy))
		return -1;
	rows = keeper_database_query(context->database, sql_query_change_counts, 0, NULL);
	if (!rows)
		return -1;
	changes_take(&changes, rows);
	if (strcmp(put_back->installation, changes.installation) != 0)
		atomic_fetch_add(&published_installations_n, 1);
	memcpy(put_back->installation, changes.installation, INSTALLATION_SIZE);
	put_back->fence = PQntuples(rows) > 0 ? strtoll(PQgetvalue(rows, 0, 2), NULL, 10) : 0;
	PQclear(rows);
	relation_set(put_back, changes_relate(put_back->relation, &changes, &copy), &copy);
	if (put_back->relation == RELATION_UNCLAIMED)
		unclaimed_step(put_back, context);
	else
		put_back->unclaimed_ms = 0;
	if (put_back->relation != RELATION_OWN)
		return 0;
	transactions = changes_behind(&changes, &copy);
	behind_set(put_back, transactions);
	return transactions > 0 ? 0 : changes_copy_raise(context->redis, &changes, &copy);
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
	put_back->hold_due_ms = clock_monotonic_ms() + PUT_BACK_HOLD_MS;
	return redis_client_is_open(context->redis) ? 0 : -1;
}
