#include "gateway/known.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/ulid.h"
#include "common/redis/key.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ALIVE_MS 5000       /* see sql/function/gateway_alive.sql */
#define AGAIN_MS 2000       /* after a failure */
#define REPORTS_MAX 256     /* in flight */
#define REPORT_AGAIN_MS 500 /* after one has failed */
#define LEAVE_MS 500        /* at most */
#define HOST_SIZE 128
/*
 * While PostgreSQL is away. Keepers that have not read the marks for this long wait for the reports
 * as if a gateway were missing (keeper/gateways.h).
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
		known->comparison->relation == RELATION_UNCLAIMED);
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
	known->alive_ms = clock_monotonic_ms() + (rows ? ALIVE_MS : AGAIN_MS);
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
	known->alive_ms = now_ms + AGAIN_MS;
	known->is_asking = lookup_alive(known->lookup, known->id, known->place, !known->is_recorded,
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
	if (reply && reply->type == REDIS_REPLY_INTEGER)
		return;
	log_warn("gateway_mark", LOG_S("error", reply ? reply->str : "no reply"));
	known->report = REPORT_FAILED;
	known->again_ms = now_ms + AGAIN_MS;
}

static void mark(struct known *known)
{
	struct redis_link *link = redis_pool_pick(known->redis);
	const char *argv[] = { "HSET", GATEWAYS_KEY, known->id, known->run_id };

	known->report = REPORT_MARKING;
	if (!link || redis_link_words(link, 4, argv, on_mark, known))
		on_mark(known, NULL);
}

/*
 * The copy of the comparison was read over the new connection: a Redis of others gets no reports.
 */
static int may_report(const struct known *known)
{
	return known->comparison->redis_connects == redis_pool_connects(known->redis) &&
	       redis_pool_connects(known->redis) > 0 &&
	       known->comparison->relation != RELATION_FOREIGN;
}

static void report_begin(struct known *known)
{
	const char *run_id = redis_pool_run_id(known->redis);

	known->report = REPORT_RUNNING;
	known->redis_connects = redis_pool_connects_n(known->redis);
	known->failed_n = redis_pool_reports_failed_n(known->redis);
	snprintf(known->run_id, sizeof(known->run_id), "%s", run_id ? run_id : "");
	redis_pool_report_begin(known->redis);
	admission_report_begin(known->admission);
}

void known_flush(struct known *known)
{
	size_t reports = redis_pool_reports(known->redis);

	if (known->report != REPORT_RUNNING)
		return;
	if (reports < REPORTS_MAX)
		admission_report_some(known->admission, REPORTS_MAX - reports);
	if (redis_pool_reports(known->redis) > 0)
		return;
	if (known->failed_n != redis_pool_reports_failed_n(known->redis)) {
		known->report = REPORT_FAILED;
		known->again_ms = clock_monotonic_ms() + REPORT_AGAIN_MS;
	} else if (*known->run_id) {
		mark(known);
	} else {
		known->report = REPORT_NONE; /* until the other connections are ready */
	}
}

static int report_is_due(const struct known *known, int64_t now_ms)
{
	return may_report(known) && (known->redis_connects != redis_pool_connects_n(known->redis) ||
				     (known->report == REPORT_FAILED && now_ms >= known->again_ms));
}

void known_tick(struct known *known, int64_t now_ms)
{
	if (known->leave_ms)
		return;
	row_step(known, now_ms);
	if (report_is_due(known, now_ms))
		report_begin(known);
}

int known_is_busy(const struct known *known)
{
	return (may_report(known) &&
		known->redis_connects != redis_pool_connects_n(known->redis)) ||
	       (is_own(known) && known->lookup_connects != lookup_connects_n(known->lookup));
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
	struct redis_link *link = redis_pool_pick(known->redis);
	const char *argv[] = { "HDEL", GATEWAYS_KEY, known->id };

	if (known->leave_ms == 0) {
		known->leave_ms = now_ms + LEAVE_MS;
		if (link && may_report(known) &&
		    redis_link_words(link, 3, argv, on_unmarked, known) == 0)
			known->leaving++;
		if (is_own(known) && lookup_gone(known->lookup, known->id, on_gone, known) == 0)
			known->leaving++;
	}
	return known->leaving == 0 || now_ms >= known->leave_ms;
}
