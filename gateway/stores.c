#include "gateway/stores.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "common/program/durability.h"
#include "common/redis/redis.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMPARE_AGAIN_MS 500
#define COMPARE_EQUAL_MS 5000
#define LOOK_MS 200      /* between two looks at the id in Redis */
#define ADOPT_NEW_MS 500 /* a gateway that has just learnt its id leaves Redis to others */

static void relation_set(struct comparison *comparison)
{
	struct changes own = { .num = { 0 } };
	enum relation before = comparison->relation;

	memcpy(own.installation, comparison->installation, INSTALLATION_SIZE);
	comparison->relation = changes_relate(before, &own, &comparison->copy);
	if (comparison->relation == RELATION_FOREIGN)
		lookup_trust(comparison->lookup, LOOKUP_FOREIGN);
	if ((comparison->relation == RELATION_FOREIGN) != (before == RELATION_FOREIGN))
		comparison->due_ms = 0; /* PostgreSQL may have got another id, too */
	if (comparison->is_first)
		relation_log(before, comparison->relation, &own, &comparison->copy);
}

static void on_changes(void *context, const PGresult *rows)
{
	struct comparison *comparison = context;
	struct changes changes;
	struct standing standing;
	enum lookup_trust trust = LOOKUP_TRUSTED;

	comparison->is_asking = 0;
	if (!rows || comparison_is_due(comparison))
		return;
	changes_take(&changes, rows);
	if (strcmp(changes.installation, comparison->installation) != 0) {
		memcpy(comparison->installation, changes.installation, INSTALLATION_SIZE);
		comparison->adopt_ms = clock_monotonic_ms() + ADOPT_NEW_MS;
	}
	relation_set(comparison);
	if (comparison->relation == RELATION_FOREIGN)
		return;
	/* A standby that is not behind is trusted; keepers have Redis follow another server. */
	standing = changes_stand(comparison->relation, &changes, &comparison->copy);
	if (standing.relation == RELATION_OLD)
		trust = LOOKUP_OLD;
	else if (standing.behind > 0)
		trust = LOOKUP_PUT_BACK;
	else
		comparison->due_ms = clock_monotonic_ms() + COMPARE_EQUAL_MS;
	lookup_trust(comparison->lookup, trust);
}

static void on_adopt(void *context, const redisReply *reply)
{
	const struct comparison *comparison = context;

	if (reply && reply->type == REDIS_REPLY_STRING &&
	    changes_replied(reply->str) == RELATION_OWN)
		log_info("installation_adopted", LOG_S("installation", comparison->installation));
}

/* Redis has lost its data, the id too. It gets back the one that PostgreSQL had before that. */
static void adopt_step(struct comparison *comparison, int64_t now_ms)
{
	const char *argv[] = { "EVAL", lua_changes, "1",    CHANGES_KEY, comparison->installation,
			       "none", "",          "newer" };

	if (comparison->is_first && comparison->relation == RELATION_UNADOPTED &&
	    now_ms >= comparison->adopt_ms)
		redis_pool_query(redis_pool_pick(comparison->redis), 8, argv, on_adopt, comparison);
}

static void on_copy(void *context, const redisReply *reply)
{
	struct comparison *comparison = context;
	int64_t now_ms = clock_monotonic_ms();

	comparison->is_asking = 0;
	if (!reply || changes_copy_take(&comparison->copy, reply))
		return;
	comparison->redis_connects = comparison->asked_connects;
	relation_set(comparison);
	adopt_step(comparison, now_ms);
	if (!comparison->is_look)
		comparison->is_asking = lookup_ask(comparison->lookup, LOOKUP_CHANGES, 0, NULL,
						   on_changes, comparison) == 0;
}

int comparison_is_due(const struct comparison *comparison)
{
	return comparison->connects != lookup_connects_n(comparison->lookup);
}

/* First the copy: it must not be newer than what it is compared with. */
void comparison_tick(struct comparison *comparison, int64_t now_ms)
{
	const char *argv[] = { "HGETALL", CHANGES_KEY };
	int is_compared = lookup_is_connected(comparison->lookup) &&
			  (comparison_is_due(comparison) || now_ms >= comparison->due_ms),
	    is_look = comparison->is_first &&
		      (now_ms >= comparison->look_ms ||
		       comparison->redis_connects != redis_pool_connects(comparison->redis));

	if (comparison->is_asking || redis_pool_trouble(comparison->redis) ||
	    (!is_compared && !is_look))
		return;
	comparison->look_ms = now_ms + LOOK_MS;
	comparison->asked_connects = redis_pool_connects(comparison->redis);
	comparison->is_look = !is_compared;
	if (is_compared) {
		comparison->connects = lookup_connects_n(comparison->lookup);
		comparison->due_ms = now_ms + COMPARE_AGAIN_MS;
	}
	comparison->is_asking = 1;
	redis_pool_query(redis_pool_pick(comparison->redis), 2, argv, on_copy, comparison);
}

#define ALIVE_MS 5000       /* see sql/function/gateway_alive.sql */
#define ROW_AGAIN_MS 2000   /* after a failure */
#define REPORTS_MAX 256     /* in flight */
#define REPORT_AGAIN_MS 500 /* after one has failed */
#define LEAVE_MS 500        /* at most */
#define REFUSED_MS 1000
#define REFUSED_AGAIN_MS 60000 /* after Redis has refused that */
#define REFUSED_MAX 512        /* of lua/refused.lua */
#define REFUSED_NAME_SIZE 24   /* of an answer, with a colon */
#define HOST_SIZE 128
/*
 * While PostgreSQL is away. Keepers that have not read the marks for this long wait for the reports
 * as if a gateway were missing (keeper/keeper_stores.h).
 */
#define KNOWN_BY_MARK_MS 3000

void known_init(struct known *known, const char *listen, size_t process)
{
	char host[HOST_SIZE] = "";
	struct ulid ulid;

	ulid_new(&ulid, clock_wall_ms());
	ulid_to_uuid(&ulid, known->id);
	gethostname(host, sizeof(host) - 1);
	snprintf(known->place, sizeof(known->place), "%s %s %zu", host, listen, process);
}

/* Whether PostgreSQL has been compared, and does not belong to others. */
static int is_own(const struct known *known)
{
	return lookup_is_connected(known->lookup) && !comparison_is_due(known->comparison) &&
	       (known->comparison->relation == RELATION_OWN ||
		known->comparison->relation == RELATION_UNADOPTED);
}

static int row_is_due(const struct known *known, int64_t now_ms)
{
	return is_own(known) && !known->is_asking &&
	       (known->lookup_connects != lookup_connects_n(known->lookup) ||
		now_ms >= known->alive_ms);
}

static void on_alive(void *context, const PGresult *rows)
{
	struct known *known = context;

	known->is_asking = 0;
	known->alive_ms = clock_monotonic_ms() + (rows ? ALIVE_MS : ROW_AGAIN_MS);
	if (rows && !known->is_recorded)
		log_info("gateway_known", LOG_S("gateway", known->id),
			 LOG_S("place", known->place));
	known->is_recorded |= rows != NULL;
}

static void row_step(struct known *known, int64_t now_ms)
{
	if (!row_is_due(known, now_ms))
		return;
	known->lookup_connects = lookup_connects_n(known->lookup);
	known->alive_ms = now_ms + ROW_AGAIN_MS;
	known->is_asking =
		lookup_ask(known->lookup, LOOKUP_ALIVE,
			   POSTGRES_ARGUMENTS(postgres_text(known->id), postgres_text(known->place),
					      postgres_text(known->is_recorded ? "false" : "true")),
			   on_alive, known) == 0;
}

static void on_mark(void *context, const redisReply *reply)
{
	struct known *known = context;
	int64_t now_ms = clock_monotonic_ms();

	if (known->report != REPORT_MARKING)
		return; /* it has begun anew */
	if (known->marked_ms == 0)
		known->marked_ms = now_ms;
	known->report = REPORT_NONE;
	if (reply && reply->type == REDIS_REPLY_INTEGER) {
		memcpy(known->marked, known->run_id, sizeof(known->marked));
		known->is_other = 0;
		return;
	}
	log_warn("gateway_mark", LOG_S("error", reply ? reply->str : "no reply"));
	known->report = REPORT_FAILED;
	known->again_ms = now_ms + ROW_AGAIN_MS;
}

static void mark(struct known *known)
{
	const char *argv[] = { "HSET", GATEWAYS_KEY, known->id, known->run_id };

	known->report = REPORT_MARKING;
	redis_pool_query(redis_pool_pick(known->redis), 4, argv, on_mark, known);
}

/*
 * The copy of the comparison was read over the new connection: a Redis of others gets no reports.
 */
int known_may_report(const struct known *known)
{
	return known->comparison->redis_connects == redis_pool_connects(known->redis) &&
	       redis_pool_connects(known->redis) > 0 &&
	       known->comparison->relation != RELATION_FOREIGN;
}

static void report_done(void *context, const redisReply *reply)
{
	struct known *known = context;

	known->reports--;
	if (reply && reply->type == REDIS_REPLY_INTEGER)
		return;
	known->has_failed = 1;
	known->report_sha[0] = '\0';
	if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) != 0)
		log_warn("report", LOG_S("error", reply->str));
}

void known_report(struct known *known, int64_t coupon, int64_t generation, int64_t seq,
		  int is_recent)
{
	char keys[2][COUPON_KEY_SIZE], generation_text[NUMBER_SIZE], seq_text[NUMBER_SIZE];
	const char *argv[] = { *known->report_sha ? "EVALSHA" : "EVAL",
			       *known->report_sha ? known->report_sha : lua_report,
			       "2",
			       coupon_key(coupon, COUPON_KEY_COUPON, keys[0]),
			       coupon_key(coupon, COUPON_KEY_SEEN, keys[1]),
			       number_text(generation, generation_text),
			       number_text(seq, seq_text),
			       known->is_other && is_recent ? known->run_id : "" };

	known->reports++;
	redis_pool_query(redis_pool_pick(known->redis), 8, argv, report_done, known);
}

static void report_loaded(void *context, const redisReply *reply)
{
	struct known *known = context;

	if (reply && reply->type == REDIS_REPLY_STRING && reply->len < sizeof(known->report_sha))
		memcpy(known->report_sha, reply->str, reply->len + 1);
}

/* Many reports follow: the script is loaded, so that it is not sent with each. */
static void report_begin(struct known *known)
{
	const char *argv[] = { "SCRIPT", "LOAD", lua_report };
	const char *run_id = redis_pool_run_id(known->redis);

	known->report = REPORT_RUNNING;
	known->redis_connects = redis_pool_connects_n(known->redis);
	known->has_failed = 0;
	snprintf(known->run_id, sizeof(known->run_id), "%s", run_id ? run_id : "");
	known->is_other = *known->run_id && *known->marked &&
			  strncmp(known->run_id, known->marked, REDIS_PROCESS_LEN) != 0;
	known->report_sha[0] = '\0';
	redis_pool_query(redis_pool_pick(known->redis), 3, argv, report_loaded, known);
	admission_report_begin(known->admission);
}

void known_flush(struct known *known)
{
	if (known->report != REPORT_RUNNING)
		return;
	if (known->reports < REPORTS_MAX)
		admission_report_some(known->admission, REPORTS_MAX - known->reports);
	if (known->reports > 0)
		return;
	if (known->has_failed) {
		known->report = REPORT_FAILED;
		known->again_ms = clock_monotonic_ms() + REPORT_AGAIN_MS;
	} else if (*known->run_id) {
		mark(known);
	} else {
		known->report = REPORT_NONE; /* until the other connections are ready */
	}
}

static void refused_done(void *context, const redisReply *reply)
{
	struct known *known = context;

	if (!reply || reply->type == REDIS_REPLY_INTEGER)
		return;
	log_warn("refusals", LOG_S("error", reply->str));
	known->refused_ms = clock_monotonic_ms() + REFUSED_AGAIN_MS;
}

/* Tells of as many coupons as one call may have; the others wait. */
static void refused_tell(struct known *known)
{
	char fields[REFUSED_MAX][NUMBER_SIZE + REFUSED_NAME_SIZE];
	char numbers[REFUSED_MAX][NUMBER_SIZE];
	const char *argv[4 + 2 * REFUSED_MAX] = { "EVAL", lua_refused, "1", REFUSED_KEY };
	struct refusals refusals;
	size_t n = 0;

	while (n + REFUSALS_N <= REFUSED_MAX &&
	       admission_refusals_take(known->admission, &refusals))
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
		redis_pool_query(redis_pool_pick(known->redis), 4 + 2 * (int)n, argv, refused_done,
				 known);
}

/*
 * The mark, and the number of the last change. If the mark is gone, Redis has lost its data, and
 * kept the connection.
 */
static void on_mark_read(void *context, const redisReply *reply)
{
	struct known *known = context;
	const redisReply *mark;
	int64_t news = 0;

	known->is_looking = 0;
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || known->leave_ms)
		return;
	if (reply->element[1]->type == REDIS_REPLY_STRING)
		(void)id_parse(reply->element[1]->str, reply->element[1]->len, &news);
	if (news != known->news) {
		known->news = news;
		admission_forget(known->admission);
		known->news_keys = key_records_ask(known->key_records);
		known->news_codes = catalogue_renew(known->catalogue);
	}
	mark = reply->element[0];
	if (known->report == REPORT_NONE && *known->marked &&
	    (mark->type != REDIS_REPLY_STRING || strcmp(mark->str, known->marked) != 0))
		known->redis_connects = 0;
}

static void mark_look(struct known *known)
{
	const char *argv[] = { "HMGET", GATEWAYS_KEY, known->id, GATEWAYS_NEWS };

	if (known->is_looking)
		return;
	known->is_looking = 1;
	redis_pool_query(redis_pool_pick(known->redis), 4, argv, on_mark_read, known);
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
	struct known *known = context;

	if (reply && reply->type != REDIS_REPLY_ERROR)
		return;
	known->knows_terms = -1; /* again with the next tick */
	if (reply)
		log_warn("gateway_knows", LOG_S("error", reply->str));
}

/* Tells what it knows when that is more: a keeper at rest would notice any other write. */
static void knows_tell(struct known *known)
{
	const struct key_records *records = known->key_records;
	int64_t keys = known->knows_keys, codes = known->knows_codes;
	char numbers[3 * NUMBER_SIZE];
	const char *argv[] = { "EVAL", SET_WITHOUT_MEMORY, "1", KNOWS_KEY, known->id, numbers };

	if (records->told_n >= known->news_keys)
		keys = known->news;
	else if (records->asked_n >= known->news_keys && !records->is_asked)
		known->news_keys = key_records_ask(known->key_records); /* no store could tell */
	if (catalogue_has(known->catalogue, known->news_codes))
		codes = known->news;
	if (known->knows_terms == known->news && keys == known->knows_keys &&
	    codes == known->knows_codes)
		return;
	snprintf(numbers, sizeof(numbers), "%lld %lld %lld", (long long)known->news,
		 (long long)keys, (long long)codes);
	known->knows_terms = known->news;
	known->knows_keys = keys;
	known->knows_codes = codes;
	redis_pool_query(redis_pool_pick(known->redis), 6, argv, on_knows, known);
}

static void uncopied_done(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("uncopied", LOG_S("error", reply->str));
}

/* Each time while there are some: Redis may have lost the number with its data. */
static void uncopied_tell(struct known *known)
{
	size_t uncopied = copies_lost(known->copies);
	char number[NUMBER_SIZE];
	const char *eval[] = { "EVAL",    SET_WITHOUT_MEMORY,
			       "1",       UNCOPIED_KEY,
			       known->id, number_text((int64_t)uncopied, number) };
	const char *hdel[] = { "HDEL", UNCOPIED_KEY, known->id };

	if (uncopied > 0)
		redis_pool_query(redis_pool_pick(known->redis), 6, eval, uncopied_done, NULL);
	else if (known->uncopied > 0)
		redis_pool_query(redis_pool_pick(known->redis), 3, hdel, uncopied_done, NULL);
	known->uncopied = uncopied;
}

static int report_is_due(const struct known *known, int64_t now_ms)
{
	return known_may_report(known) &&
	       (known->redis_connects != redis_pool_connects_n(known->redis) ||
		(known->report == REPORT_FAILED && now_ms >= known->again_ms));
}

void known_tick(struct known *known, int64_t now_ms)
{
	if (known->leave_ms)
		return;
	row_step(known, now_ms);
	if (report_is_due(known, now_ms))
		report_begin(known);
	if (now_ms >= known->refused_ms && known_may_report(known)) {
		known->refused_ms = now_ms + REFUSED_MS;
		refused_tell(known);
		uncopied_tell(known);
	}
	if (known_may_report(known)) {
		mark_look(known);
		knows_tell(known);
	}
}

int known_is_busy(const struct known *known, int64_t now_ms)
{
	return report_is_due(known, now_ms) || row_is_due(known, now_ms);
}

int known_may_issue(const struct known *known, int64_t now_ms)
{
	return known->is_recorded ||
	       (known->marked_ms && now_ms - known->marked_ms >= KNOWN_BY_MARK_MS);
}

static void on_gone(void *context, const PGresult *rows)
{
	struct known *known = context;

	(void)rows;
	known->leaving--;
}

static void on_unmarked(void *context, const redisReply *reply)
{
	struct known *known = context;

	(void)reply;
	known->leaving--;
}

int known_leave(struct known *known, int64_t now_ms)
{
	const char *argv[] = { "HDEL", GATEWAYS_KEY, known->id };
	const char *uncopied[] = { "HDEL", UNCOPIED_KEY, known->id };
	const char *knows[] = { "HDEL", KNOWS_KEY, known->id };

	if (known->leave_ms == 0) {
		known->leave_ms = now_ms + LEAVE_MS;
		if (known_may_report(known))
			refused_tell(known);
		if (known_may_report(known)) {
			known->leaving += 3;
			redis_pool_query(redis_pool_pick(known->redis), 3, argv, on_unmarked,
					 known);
			redis_pool_query(redis_pool_pick(known->redis), 3, uncopied, on_unmarked,
					 known);
			redis_pool_query(redis_pool_pick(known->redis), 3, knows, on_unmarked,
					 known);
		}
		if (is_own(known) &&
		    lookup_ask(known->lookup, LOOKUP_GONE,
			       POSTGRES_ARGUMENTS(postgres_text(known->id)), on_gone, known) == 0)
			known->leaving++;
	}
	return known->leaving == 0 || now_ms >= known->leave_ms;
}

#define SETTINGS_AGAIN_MS 60000

/* CONFIG GET returns name and value, or nothing for an unknown name. */
static void on_config(void *context, const redisReply *reply)
{
	struct weak_settings *settings = context;

	if (!reply)
		return; /* the connection is lost: repeated over the next one */
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->str &&
	    reply->element[1]->str)
		durability_tell(&settings->durability, reply->element[0]->str,
				reply->element[1]->str);
	else
		durability_unknown(&settings->durability, DURABILITY_REDIS,
				   reply->str ? reply->str : "CONFIG GET returns nothing");
}

static void on_settings(void *context, const PGresult *rows)
{
	struct weak_settings *settings = context;

	for (int row = 0; rows && row < PQntuples(rows); row++)
		durability_tell(&settings->durability, column_text(rows, row, "name"),
				column_text(rows, row, "setting"));
}

/* Whether the part's settings are to be read now. */
static int part_is_due(struct weak_settings *settings, enum durability_part part, uint64_t connects,
		       int is_connected, int64_t now_ms)
{
	if (connects != settings->parts[part].connects) {
		durability_begin(&settings->durability, part);
		settings->parts[part].due_ms = now_ms;
	}
	settings->parts[part].connects = connects;
	if (connects == 0 || now_ms < settings->parts[part].due_ms || !is_connected)
		return 0;
	settings->parts[part].due_ms = now_ms + SETTINGS_AGAIN_MS;
	return 1;
}

void weak_settings_tick(struct weak_settings *settings, int64_t now_ms)
{
	const char *argv[] = { "CONFIG", "GET", NULL };

	if (part_is_due(settings, DURABILITY_REDIS, redis_pool_connects(settings->redis), 1,
			now_ms))
		for (int i = 0; (argv[2] = durability_redis_setting(i, settings->has_sentinels));
		     i++)
			redis_pool_query(redis_pool_pick(settings->redis), 3, argv, on_config,
					 settings);
	if (part_is_due(settings, DURABILITY_POSTGRESQL, lookup_connects_n(settings->lookup),
			lookup_is_connected(settings->lookup), now_ms))
		lookup_ask(settings->lookup, LOOKUP_SETTINGS, 0, NULL, on_settings, settings);
	metrics_set(METRIC_WEAK_SETTINGS,
		    durability_warnings(&settings->durability, NULL) + transport_warnings(NULL));
}
