#include "gateway/presence.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "common/redis/redis.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/auth/auth.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ALIVE_MS 5000       /* see sql/function/gateway_alive.sql */
#define ROW_AGAIN_MS 2000   /* after a failure */
#define REPORTS_MAX 256     /* in flight */
#define REPORT_AGAIN_MS 500 /* after one has failed */
#define LEAVE_MS 500        /* at most */
#define REFUSED_MS 1000
#define REFUSED_AGAIN_MS 60000 /* after Redis has refused that */
#define REFUSED_MAX 512        /* as lua/refused.lua takes */
#define REFUSED_NAME_SIZE 24   /* an answer, with a colon */
#define KEYS_USED_MS 10000
#define KEYS_USED_MAX 128 /* the others wait */
#define HOST_SIZE 128
/*
 * While PostgreSQL is away. Keepers that have not read the marks for this long wait for the reports
 * as if a gateway were missing (keeper/keeper_stores.h).
 */
#define KNOWN_BY_MARK_MS 3000

void presence_init(struct presence *presence, const char *listen, size_t process)
{
	char host[HOST_SIZE] = "";
	struct ulid ulid;

	ulid_new(&ulid, clock_wall_ms());
	ulid_to_uuid(&ulid, presence->id);
	gethostname(host, sizeof(host) - 1);
	snprintf(presence->place, sizeof(presence->place), "%s %s %zu", host, listen, process);
}

/* Whether PostgreSQL has been compared, and does not belong to others. */
static int is_own(const struct presence *presence)
{
	return lookup_is_connected(presence->lookup) && !comparison_is_due(presence->comparison) &&
	       (presence->comparison->relation == RELATION_OWN ||
		presence->comparison->relation == RELATION_UNADOPTED);
}

static int row_is_due(const struct presence *presence, int64_t now_ms)
{
	return is_own(presence) && !presence->is_asking &&
	       (presence->lookup_connects != lookup_connects_n(presence->lookup) ||
		now_ms >= presence->alive_ms);
}

static void on_alive(void *context, const PGresult *rows)
{
	struct presence *presence = context;

	presence->is_asking = 0;
	presence->alive_ms = clock_monotonic_ms() + (rows ? ALIVE_MS : ROW_AGAIN_MS);
	if (rows && !presence->is_recorded)
		log_info("gateway_known", LOG_S("gateway", presence->id),
			 LOG_S("place", presence->place));
	presence->is_recorded |= rows != NULL;
}

static void on_mark(void *context, const redisReply *reply)
{
	struct presence *presence = context;
	int64_t now_ms = clock_monotonic_ms();

	if (presence->report != REPORT_MARKING)
		return; /* it has begun anew */
	if (presence->marked_ms == 0)
		presence->marked_ms = now_ms;
	presence->report = REPORT_NONE;
	if (reply && reply->type == REDIS_REPLY_INTEGER) {
		memcpy(presence->marked, presence->run_id, sizeof(presence->marked));
		presence->is_other = 0;
		return;
	}
	log_warn("gateway_mark", LOG_S("error", reply ? reply->str : "no reply"));
	presence->report = REPORT_FAILED;
	presence->again_ms = now_ms + ROW_AGAIN_MS;
}

static void on_reported(void *context, const redisReply *reply)
{
	struct presence *presence = context;

	presence->reports--;
	if (reply && reply->type == REDIS_REPLY_INTEGER)
		return;
	presence->has_failed = 1;
	presence->report_sha[0] = '\0';
	if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) != 0)
		log_warn("report", LOG_S("error", reply->str));
}

void presence_report(struct presence *presence, int64_t coupon, int64_t generation, int64_t seq,
		     int is_recent)
{
	char keys[2][COUPON_KEY_SIZE], generation_text[NUMBER_SIZE], seq_text[NUMBER_SIZE];
	const char *argv[] = { *presence->report_sha ? "EVALSHA" : "EVAL",
			       *presence->report_sha ? presence->report_sha : lua_report,
			       "2",
			       coupon_key(coupon, COUPON_KEY_COUPON, keys[0]),
			       coupon_key(coupon, COUPON_KEY_SEEN, keys[1]),
			       number_text(generation, generation_text),
			       number_text(seq, seq_text),
			       presence->is_other && is_recent ? presence->run_id : "" };

	presence->reports++;
	redis_pool_query(presence->redis, 8, argv, on_reported, presence);
}

static void on_report_loaded(void *context, const redisReply *reply)
{
	struct presence *presence = context;

	if (reply && reply->type == REDIS_REPLY_STRING && reply->len < sizeof(presence->report_sha))
		memcpy(presence->report_sha, reply->str, reply->len + 1);
}

void presence_flush(struct presence *presence)
{
	const char *mark[] = { "HSET", GATEWAYS_KEY, presence->id, presence->run_id };

	if (presence->report != REPORT_RUNNING)
		return;
	if (presence->reports < REPORTS_MAX)
		admission_report_some(presence->admission, REPORTS_MAX - presence->reports);
	if (presence->reports > 0)
		return;
	if (presence->has_failed) {
		presence->report = REPORT_FAILED;
		presence->again_ms = clock_monotonic_ms() + REPORT_AGAIN_MS;
	} else if (*presence->run_id) {
		presence->report = REPORT_MARKING;
		redis_pool_query(presence->redis, 4, mark, on_mark, presence);
	} else {
		presence->report = REPORT_NONE; /* until the other connections are ready */
	}
}

static void on_refused(void *context, const redisReply *reply)
{
	struct presence *presence = context;

	if (!reply || reply->type == REDIS_REPLY_INTEGER)
		return;
	log_warn("refusals", LOG_S("error", reply->str));
	presence->refused_ms = clock_monotonic_ms() + REFUSED_AGAIN_MS;
}

/* Tells of as many coupons as one call may have; the others wait. */
static void refused_tell(struct presence *presence)
{
	char fields[REFUSED_MAX][NUMBER_SIZE + REFUSED_NAME_SIZE];
	char numbers[REFUSED_MAX][NUMBER_SIZE];
	const char *argv[4 + 2 * REFUSED_MAX] = { "EVAL", lua_refused, "1", REFUSED_KEY };
	struct refusals refusals;
	size_t n = 0;

	while (n + REFUSALS_N <= REFUSED_MAX &&
	       admission_refusals_take(presence->admission, &refusals))
		for (unsigned i = 0; i < REFUSALS_N; i++) {
			if (refusals.num[i] == 0)
				continue;
			snprintf(fields[n], sizeof(fields[n]), "%lld:%s",
				 (long long)refusals.coupon, answer_status(REFUSALS_FIRST + i));
			argv[4 + 2 * n] = fields[n];
			argv[5 + 2 * n] = number_text(refusals.num[i], numbers[n]);
			n++;
		}
	if (n > 0)
		redis_pool_query(presence->redis, 4 + 2 * (int)n, argv, on_refused, presence);
}

static void on_keys_used(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("keys_used", LOG_S("error", reply->str));
}

/* Tells which keys were used since. Returns whether there are any: then `done` is called. */
static int keys_used_tell(struct presence *presence, redis_done_fn *done)
{
	struct key_last_use uses[KEYS_USED_MAX];
	char numbers[KEYS_USED_MAX][NUMBER_SIZE];
	const char *argv[2 + 2 * KEYS_USED_MAX] = { "HSET", KEYS_USED_KEY };
	size_t n = key_uses_take(uses, KEYS_USED_MAX);

	for (size_t i = 0; i < n; i++) {
		argv[2 + 2 * i] = uses[i].id;
		argv[3 + 2 * i] = number_text(uses[i].ms, numbers[i]);
	}
	if (n > 0)
		redis_pool_query(presence->redis, 2 + 2 * (int)n, argv, done, presence);
	return n > 0;
}

/*
 * The mark, and the number of the last change. If the mark is gone, Redis has lost its data, and
 * kept the connection.
 */
static void on_mark_read(void *context, const redisReply *reply)
{
	struct presence *presence = context;
	const redisReply *mark;
	int64_t news = 0;

	presence->is_looking = 0;
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    presence->leave_ms)
		return;
	if (reply->element[1]->type == REDIS_REPLY_STRING)
		(void)id_parse(reply->element[1]->str, reply->element[1]->len, &news);
	if (news != presence->news) {
		presence->news = news;
		admission_forget(presence->admission);
		presence->news_terms = catalogue_renew(presence->catalogue);
		presence->news_keys = key_watch_ask(presence->key_watch, 1);
		presence->news_codes = claim_codes_renew(presence->claim);
	}
	mark = reply->element[0];
	if (presence->report == REPORT_NONE && *presence->marked &&
	    (mark->type != REDIS_REPLY_STRING || strcmp(mark->str, presence->marked) != 0))
		presence->redis_connects = 0;
}

/*
 * Sets a field of a hash while Redis is out of memory, too: Redis refuses a write then only if that
 * is the first one of a script, and never an HDEL.
 */
#define SET_WITHOUT_MEMORY                      \
	"redis.call('HDEL', KEYS[1], ARGV[1]) " \
	"return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])"

static void on_knows(void *context, const redisReply *reply)
{
	struct presence *presence = context;

	if (reply && reply->type != REDIS_REPLY_ERROR)
		return;
	presence->knows_terms = -1; /* again with the next tick */
	if (reply)
		log_warn("gateway_knows", LOG_S("error", reply->str));
}

/* Tells what it knows when that is more: a keeper at rest would notice any other write. */
static void knows_tell(struct presence *presence)
{
	int64_t terms = presence->knows_terms, keys = presence->knows_keys,
		codes = presence->knows_codes;
	int told = key_watch_told(presence->key_watch, presence->news_keys);
	char numbers[3 * NUMBER_SIZE];
	const char *argv[] = { "EVAL", SET_WITHOUT_MEMORY, "1", KNOWS_KEY, presence->id, numbers };

	if (told > 0)
		keys = presence->news;
	else if (told < 0)
		presence->news_keys = key_watch_ask(presence->key_watch, 1);
	if (catalogue_has(presence->catalogue, presence->news_terms))
		terms = presence->news;
	if (claim_codes_has(presence->claim, presence->news_codes))
		codes = presence->news;
	if (terms == presence->knows_terms && keys == presence->knows_keys &&
	    codes == presence->knows_codes)
		return;
	snprintf(numbers, sizeof(numbers), "%lld %lld %lld", (long long)terms, (long long)keys,
		 (long long)codes);
	presence->knows_terms = terms;
	presence->knows_keys = keys;
	presence->knows_codes = codes;
	redis_pool_query(presence->redis, 6, argv, on_knows, presence);
}

static void on_uncopied(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("uncopied", LOG_S("error", reply->str));
}

static int report_is_due(const struct presence *presence, int64_t now_ms)
{
	return comparison_allows_telling(presence->comparison) &&
	       (presence->redis_connects != redis_pool_connects_n(presence->redis) ||
		(presence->report == REPORT_FAILED && now_ms >= presence->again_ms));
}

void presence_tick(struct presence *presence, int64_t now_ms)
{
	const char *load[] = { "SCRIPT", "LOAD", lua_report };
	const char *look[] = { "HMGET", GATEWAYS_KEY, presence->id, GATEWAYS_NEWS };
	char number[NUMBER_SIZE];
	const char *set_uncopied[] = { "EVAL",       SET_WITHOUT_MEMORY, "1",
				       UNCOPIED_KEY, presence->id,       number };
	const char *no_uncopied[] = { "HDEL", UNCOPIED_KEY, presence->id };
	const char *is_first = presence->is_recorded ? "false" : "true";
	const char *run_id;
	size_t uncopied;

	if (presence->leave_ms)
		return;
	if (row_is_due(presence, now_ms)) {
		presence->lookup_connects = lookup_connects_n(presence->lookup);
		presence->alive_ms = now_ms + ROW_AGAIN_MS;
		presence->is_asking = lookup_ask(presence->lookup, LOOKUP_ALIVE,
						 POSTGRES_ARGUMENTS(postgres_text(presence->id),
								    postgres_text(presence->place),
								    postgres_text(is_first)),
						 on_alive, presence) == 0;
	}

	if (report_is_due(presence, now_ms)) {
		run_id = redis_pool_run_id(presence->redis);
		presence->report = REPORT_RUNNING;
		presence->redis_connects = redis_pool_connects_n(presence->redis);
		presence->has_failed = 0;
		snprintf(presence->run_id, sizeof(presence->run_id), "%s", run_id ? run_id : "");
		presence->is_other = *presence->run_id && *presence->marked &&
				     strncmp(presence->run_id, presence->marked,
					     REDIS_PROCESS_LEN) != 0;
		/* Many reports follow: the script is loaded, so that it is not sent with each. */
		presence->report_sha[0] = '\0';
		redis_pool_query(presence->redis, 3, load, on_report_loaded, presence);
		admission_report_begin(presence->admission);
	}

	if (now_ms >= presence->refused_ms && comparison_allows_telling(presence->comparison)) {
		presence->refused_ms = now_ms + REFUSED_MS;
		refused_tell(presence);
		/* Each time while there are some: Redis may have lost the number with its data. */
		uncopied = copies_lost(presence->copies);
		number_text((int64_t)uncopied, number);
		if (uncopied > 0)
			redis_pool_query(presence->redis, 6, set_uncopied, on_uncopied, NULL);
		else if (presence->uncopied > 0)
			redis_pool_query(presence->redis, 3, no_uncopied, on_uncopied, NULL);
		presence->uncopied = uncopied;
	}

	if (now_ms >= presence->keys_used_ms && comparison_allows_telling(presence->comparison)) {
		presence->keys_used_ms = now_ms + KEYS_USED_MS;
		keys_used_tell(presence, on_keys_used);
	}

	if (comparison_allows_telling(presence->comparison)) {
		if (!presence->is_looking) {
			presence->is_looking = 1;
			redis_pool_query(presence->redis, 4, look, on_mark_read, presence);
		}
		knows_tell(presence);
	}
}

int presence_is_busy(const struct presence *presence, int64_t now_ms)
{
	return report_is_due(presence, now_ms) || row_is_due(presence, now_ms);
}

int presence_may_issue(const struct presence *presence, int64_t now_ms)
{
	return presence->is_recorded ||
	       (presence->marked_ms && now_ms - presence->marked_ms >= KNOWN_BY_MARK_MS);
}

static void on_gone(void *context, const PGresult *rows)
{
	struct presence *presence = context;

	(void)rows;
	presence->leaving--;
}

static void on_unmarked(void *context, const redisReply *reply)
{
	struct presence *presence = context;

	(void)reply;
	presence->leaving--;
}

int presence_leave(struct presence *presence, int64_t now_ms)
{
	static const char *const keys[] = { GATEWAYS_KEY, UNCOPIED_KEY, KNOWS_KEY };

	if (presence->leave_ms == 0) {
		presence->leave_ms = now_ms + LEAVE_MS;
		if (comparison_allows_telling(presence->comparison)) {
			refused_tell(presence);
			presence->leaving++;
			if (!keys_used_tell(presence, on_unmarked))
				presence->leaving--;
			for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
				const char *hdel[] = { "HDEL", keys[i], presence->id };

				presence->leaving++;
				redis_pool_query(presence->redis, 3, hdel, on_unmarked, presence);
			}
		}
		if (is_own(presence) && lookup_ask(presence->lookup, LOOKUP_GONE,
						   POSTGRES_ARGUMENTS(postgres_text(presence->id)),
						   on_gone, presence) == 0)
			presence->leaving++;
	}
	return presence->leaving == 0 || now_ms >= presence->leave_ms;
}
