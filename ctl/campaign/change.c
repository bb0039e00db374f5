#include "ctl/campaign/change.h"

#include "common/check.h"
#include "common/log/log.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

static void row_lock(struct change *change)
{
	PGresult *result = store_coupon_row(change->db, sql_query_coupon_lock, change->coupon);

	snprintf(change->status, sizeof(change->status), "%s", column_text(result, 0, "status"));
	change->issued_num = column_number(result, 0, "issued_num");
	change->terms = (struct terms){
		.version = column_number(result, 0, "version"),
		.status = change->status,
		.total = column_number(result, 0, "total_num"),
		.begin_ms = column_number(result, 0, "begin_ms"),
		.end_ms = column_number(result, 0, "end_ms"),
		.limit = column_number(result, 0, "user_limit"),
	};
	change->end_ms = column_number(result, 0, "own_end_ms");
	change->valid_to_ms = column_number(result, 0, "valid_to_ms");
	change->now_ms = column_number(result, 0, "now_ms");
	snprintf(change->zone, sizeof(change->zone), "%s", column_text(result, 0, "zone"));
	snprintf(change->begin, sizeof(change->begin), "%s", column_text(result, 0, "begin"));
	snprintf(change->end, sizeof(change->end), "%s", column_text(result, 0, "end"));
	PQclear(result);
}

void change_version_raise(struct change *change)
{
	db_do(change->db, sql_query_coupon_version_raise, postgres_number(change->coupon),
	      postgres_number(change->in_redis.version));
}

void change_begin(struct change *change, struct ctl *ctl)
{
	const struct redis_coupon *loaded = &change->in_redis;
	const struct terms *terms = &change->terms;
	const char *status;

	memset(change, 0, sizeof(*change));
	change->ctl = ctl;
	change->args = &ctl->args;
	change->coupon = args_id_argument(&ctl->args);
	change->db = store_postgres_open(ctl);
	store_by_set(change->db, ctl);
	/* Before the lock, for which settling waits: connecting may take seconds. */
	change->redis = redis_client_new(ctl->config.redis_url, NULL);
	(void)redis_client_open(change->redis); /* or every call fails */
	behind_refuse(change->db, change->redis);
	db_run(change->db, "BEGIN");
	row_lock(change);

	/* A decrease was interrupted. What the caller counts from here on is above it. */
	change->loaded = redis_coupon_read(change->redis, change->coupon, &change->in_redis);
	status = strcmp(terms->status, "published") == 0 ? "open" : terms->status;
	if (change->loaded == 1 &&
	    (change->in_redis.version > change->terms.version ||
	     (loaded->version == terms->version &&
	      (strcmp(loaded->status, status) != 0 || loaded->total != terms->total ||
	       loaded->begin_ms != terms->begin_ms || loaded->end_ms != terms->end_ms ||
	       loaded->limit != terms->limit))))
		change_version_raise(change);
}

void change_needed(struct change *change)
{
	int64_t version = args_number(change->args, "version", 1, INT32_MAX, 0);

	if (version == 0 || version == change->terms.version)
		return;
	log_fatal_status(CTL_OTHER_VERSION);
	log_fatal("--version is %lld, but coupon %lld has version %lld, so it was changed in the "
		  "meantime; see couponctl history %lld; nothing was changed",
		  (long long)version, (long long)change->coupon, (long long)change->terms.version,
		  (long long)change->coupon);
}

enum terms_result { TERMS_APPLIED, TERMS_CURRENT, TERMS_MISSING, TERMS_TAKEN, TERMS_FAILED };

/* lua/terms.lua; `*taken` is set when the result is TERMS_TAKEN. */
static enum terms_result terms_set(struct redis_client *redis, int64_t coupon,
				   const struct terms *terms, int64_t *taken)
{
	static const char *const words[] = { [TERMS_APPLIED] = "applied",
					     [TERMS_CURRENT] = "current",
					     [TERMS_MISSING] = "missing" };
	const char *status = strcmp(terms->status, "published") == 0 ? "open" : terms->status;
	char version[NUMBER_SIZE], total[NUMBER_SIZE], begin[NUMBER_SIZE], end[NUMBER_SIZE],
		limit[NUMBER_SIZE], word[REDIS_WORD_SIZE];
	const char *argv[] = {
		number_text(terms->version, version), status,
		number_text(terms->total, total),     number_text(terms->begin_ms, begin),
		number_text(terms->end_ms, end),      number_text(terms->limit, limit)
	};
	redisReply *reply = redis_client_coupon_eval(redis, lua_terms, coupon, COUPON_KEYS_ISSUE, 6,
						     argv);
	unsigned result = TERMS_APPLIED;

	if (!reply)
		return TERMS_FAILED;
	redis_reply_word(reply, word);
	while (result < TERMS_TAKEN && strcmp(word, words[result]) != 0)
		result++;
	if (result == TERMS_TAKEN) {
		check(strcmp(word, "taken") == 0 && reply->elements == 2);
		*taken = redis_reply_number(reply->element[1]);
	}
	freeReplyObject(reply);
	return (enum terms_result)result;
}

int64_t change_lower(struct change *change, struct terms *lower)
{
	int64_t taken = 0;

	if (strcmp(change->status, "draft") == 0 && change->loaded != 1)
		return -1;
	if (change->loaded < 0)
		log_fatal("Redis, which has the taken slots, cannot be read: %s; nothing was "
			  "changed",
			  redis_client_error(change->redis));
	if (change->loaded == 0)
		log_fatal(
			"Redis, which has the taken slots, does not have coupon %lld: nothing was "
			"changed",
			(long long)change->coupon);
	/* Redis may have an older state, whose taken slots mean nothing. */
	if (!redis_coupon_is_verified(change->redis, &change->in_redis))
		log_fatal(
			"Redis was restarted, and no coupon-worker has verified coupon %lld since: "
			"nothing was changed; run this again when it is verified",
			(long long)change->coupon);
	row_lock(change);
	lower->version = change->terms.version;
	switch (terms_set(change->redis, change->coupon, lower, &taken)) {
	case TERMS_APPLIED:
		change->in_redis.version = lower->version;
		return -1;
	case TERMS_TAKEN:
		return taken;
	case TERMS_FAILED:
		log_fatal("Redis refused, and nothing was changed: %s",
			  redis_client_error(change->redis));
	case TERMS_CURRENT:
	case TERMS_MISSING:
		break;
	}
	log_fatal("coupon %lld was changed in Redis at the same time: run this again",
		  (long long)change->coupon);
}

static cJSON *change_object(const struct change *change)
{
	cJSON *object = output_object();
	char begin[CLOCK_RFC3339_SIZE], end[CLOCK_RFC3339_SIZE];

	output_id(object, "coupon", change->coupon);
	output_text(object, "status", change->status);
	output_number(object, "version", change->terms.version);
	output_number(object, "total", change->terms.total);
	output_number(object, "issued", change->issued_num);
	output_text(object, "begin",
		    change->terms.begin_ms ? clock_rfc3339(change->terms.begin_ms, begin) : NULL);
	output_text(object, "end", change->end_ms ? clock_rfc3339(change->end_ms, end) : NULL);
	output_text(object, "zone", change->zone);
	return object;
}

int change_commit(struct change *change)
{
	enum terms_result result = TERMS_FAILED;
	int64_t taken = 0;

	row_lock(change);
	if (change->is_keyed) {
		cJSON *object = change_object(change);

		store_key_answer(change->db, change->ctl, object);
		cJSON_Delete(object);
	}
	db_run(change->db, "COMMIT");
	if (strcmp(change->status, "draft") == 0)
		return 0;
	if (change->loaded >= 0 && behind_copy(change->db, change->redis) == 0)
		result = terms_set(change->redis, change->coupon, &change->terms, &taken);
	switch (result) {
	case TERMS_APPLIED:
	case TERMS_CURRENT:
		return store_gateways_wait(change->db, change->redis, STORE_NEWS_TERMS);
	case TERMS_MISSING: /* the keeper will load the present terms */
		return 0;
	case TERMS_TAKEN:
		say_warning("recorded, but Redis keeps its terms, because %lld "
			    "coupons are taken there",
			    (long long)taken);
		return CTL_NOT_IN_REDIS;
	case TERMS_FAILED:
		break;
	}
	say_warning("recorded, but Redis could not be updated: %s; a keeper will "
		    "update it, or run this command again",
		    redis_client_error(change->redis));
	return CTL_NOT_IN_REDIS;
}

void change_say(struct change *change, const char *template)
{
	int as_json = args_has(change->args, "json");
	cJSON *object = change_object(change);

	if (!as_json) {
		output_text(object, "local_begin", change->begin);
		output_text(object, "local_end", change->end);
	}
	output_say(object, template, as_json);
}

void change_fini(struct change *change)
{
	redis_client_free(change->redis);
	db_close(change->db);
}
