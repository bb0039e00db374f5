#include "gateway/admit/redis_pool.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/redis/redis.h"
#include "gateway/admit/call.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define LINKS_N 4 /* measured: see redis_pool_pick() */
#define NOSCRIPT_TRIES 3

/* While a bundle is in flight only full ones are sent, so that what arrives goes together. */
#define BUNDLES_MAX 8 /* in flight */
#define CALLS_MANY 48 /* with more calls in flight a full one waits, too */
/* A connection may hang: after such a pause a bundle is sent even if it is not full. */
#define PAUSE_MS 5

STAILQ_HEAD(bundle_list, bundle);

struct redis_pool {
	struct redis_link *links[LINKS_N];
	struct admission *admission;
	char unsettled_max[NUMBER_SIZE]; /* with so many of a coupon in its outbox none is added */
	struct bundle_list unsent;       /* until the end of the loop's turn */
	struct bundle *last;             /* the last of `unsent`; NULL: none */
	size_t bundles;                  /* unsent, or in flight */
	size_t calls;                    /* in these bundles */
	int64_t sent_ms;                 /* the last bundle */
	struct event *wake;              /* the loop's turn after a pause */
	struct bundle_command command;   /* the one that is being sent */
	const struct redis_link *deciding; /* the one whose reply is being taken; NULL: none */
};

static void on_wake(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	(void)data; /* the waiting requests are sent at the end of the turn */
}

struct redis_pool *redis_pool_new(struct event_base *base, const struct config *config)
{
	const struct redis_link_options options = { .base = base,
						    .url = config->redis_url,
						    .timeout_ms = config->call_timeout_ms,
						    .script = lua_issue };
	struct redis_pool *pool = checked(calloc(1, sizeof(*pool)));

	number_text(config->unsettled_max, pool->unsettled_max);
	STAILQ_INIT(&pool->unsent);
	pool->wake = checked(evtimer_new(base, on_wake, NULL));
	for (size_t i = 0; i < LINKS_N; i++)
		pool->links[i] = redis_link_new(&options);
	return pool;
}

void redis_pool_bind(struct redis_pool *pool, struct admission *admission)
{
	pool->admission = admission;
}

/*
 * The ready connection with the fewest commands in flight, or NULL. Redis reads a limited amount of
 * each connection before it syncs its log, so that several connections get more calls under one
 * sync than one does (measured: four with eight calls reach 1.2 to 1.3 times the rate of two with
 * four).
 */
struct redis_link *redis_pool_pick(const struct redis_pool *pool)
{
	struct redis_link *best = NULL;

	for (size_t i = 0; i < LINKS_N; i++) {
		struct redis_link *link = pool->links[i];

		if (!redis_link_trouble(link) &&
		    (!best || redis_link_in_flight(link) < redis_link_in_flight(best)))
			best = link;
	}
	return best;
}

static void bundle_done(void *context, const redisReply *reply);

/* Over its link; 0, or -1. */
static int bundle_command(struct bundle *bundle)
{
	struct redis_pool *pool = bundle->pool;
	struct bundle_command *command = &pool->command;

	bundle_command_make(command, bundle, redis_link_handshake(bundle->link)->sha,
			    redis_link_handshake(bundle->link)->lease_argument,
			    pool->unsettled_max);
	fault_point(FAULT_GATEWAY_BEFORE_SEND);
	return redis_link_command(bundle->link, command->n, command->words, command->lengths,
				  bundle_done, bundle);
}

typedef void call_end_fn(struct admission *admission, struct call *call);

/* The calls that are left in the bundle end in the same way. Frees it. */
static void bundle_end(struct bundle *bundle, call_end_fn *end)
{
	struct call *call;

	while ((call = bundle_take(bundle)))
		end(bundle->pool->admission, call);
	bundle->pool->bundles--;
	bundle->pool->calls -= bundle->calls_n;
	free(bundle);
}

static void call_replied(struct bundle *bundle, struct call *call, const redisReply *reply)
{
	struct redis_pool *pool = bundle->pool;
	struct call_reply decoded;

	if (reply->type == REDIS_REPLY_ERROR) {
		log_warn("script_error", LOG_I("coupon", call->coupon_id),
			 LOG_S("error", reply->str));
		if (redis_error_means_not_run(reply->str))
			admission_not_run(pool->admission, call);
		else
			admission_lost(pool->admission, call);
		return;
	}
	if (script_reply_decode(reply, call->requests_n, &decoded)) {
		log_error("script_reply", LOG_I("coupon", call->coupon_id),
			  LOG_S("error",
				"the reply does not have the form that issue.lua returns"));
		admission_lost(pool->admission, call);
		return;
	}
	/* The process, or its replication id, may be another: each connection has to learn it. */
	for (size_t i = 0; decoded.state == CALL_UNVERIFIED && i < LINKS_N; i++)
		redis_link_process_read(pool->links[i]);
	if (decoded.state == CALL_UNVERIFIED || decoded.state == CALL_BEHIND) {
		metrics_add(METRIC_CALLS_REFUSED, 1);
		log_warn("coupon_refused", LOG_I("coupon", call->coupon_id),
			 LOG_S("why", decoded.state == CALL_BEHIND
					      ? "Redis has an older state than seen before"
					      : "not verified on this Redis process"));
	}
	admission_replied(pool->admission, call, &decoded);
}

static void bundle_done(void *context, const redisReply *reply)
{
	struct bundle *bundle = context;
	struct redis_pool *pool = bundle->pool;
	call_end_fn *end = admission_lost;
	struct call *call;

	fault_point(FAULT_GATEWAY_AFTER_REPLY);
	if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0 &&
	    bundle->tries++ < NOSCRIPT_TRIES) {
		metrics_add(METRIC_SCRIPT_RELOADS, 1);
		redis_link_script_load(bundle->link);
		if (bundle_command(bundle) == 0)
			return;
	}

	pool->deciding = reply ? bundle->link : NULL;
	if (!reply) {
		metrics_add(METRIC_CALLS_LOST, 1);
	} else if (reply->type == REDIS_REPLY_ERROR) {
		log_warn("script_error", LOG_I("coupons", (int64_t)bundle->calls_n),
			 LOG_S("error", reply->str));
		if (redis_error_means_not_run(reply->str))
			end = admission_not_run;
	} else if (reply->type != REDIS_REPLY_ARRAY || reply->elements != bundle->calls_n) {
		log_error("script_reply", LOG_I("coupons", (int64_t)bundle->calls_n),
			  LOG_S("error",
				"the reply does not have the form that issue.lua returns"));
	} else {
		for (size_t i = 0; (call = bundle_take(bundle)); i++)
			call_replied(bundle, call, reply->element[i]);
	}
	bundle_end(bundle, end);
	pool->deciding = NULL;
}

size_t redis_pool_room(struct redis_pool *pool, size_t requests, size_t coupons)
{
	static const struct timeval pause = { .tv_usec = PAUSE_MS * 1000 };
	int may_begin = pool->bundles == 0;

	if (pool->last && bundle_room(pool->last) > 0)
		return bundle_room(pool->last);
	if (!may_begin && pool->bundles < BUNDLES_MAX)
		may_begin = clock_monotonic_ms() - pool->sent_ms >= PAUSE_MS ||
			    (pool->calls <= CALLS_MANY && bundle_is_filled_by(requests, coupons));
	if (may_begin)
		return BUNDLE_REQUESTS_MAX;
	if (!evtimer_pending(pool->wake, NULL))
		evtimer_add(pool->wake, &pause);
	return 0;
}

int redis_pool_send(struct redis_pool *pool, struct call *call)
{
	if (!redis_pool_pick(pool))
		return -1;
	if (!pool->last || call->requests_n > bundle_room(pool->last)) {
		pool->last = bundle_new();
		pool->last->pool = pool;
		STAILQ_INSERT_TAIL(&pool->unsent, pool->last, next);
		pool->bundles++;
		pool->sent_ms = clock_monotonic_ms();
	}
	bundle_add(pool->last, call);
	pool->calls++;
	return 0;
}

void redis_pool_flush(struct redis_pool *pool)
{
	struct bundle *bundle;

	pool->last = NULL;
	while ((bundle = STAILQ_FIRST(&pool->unsent))) {
		STAILQ_REMOVE_HEAD(&pool->unsent, next);
		bundle->link = redis_pool_pick(pool);
		if (!bundle->link || bundle_command(bundle)) {
			bundle_end(bundle, admission_not_run);
			continue;
		}
		metrics_add(METRIC_CALLS, 1);
		metrics_add(METRIC_CALL_REQUESTS, (int64_t)bundle->requests);
	}
	for (size_t i = 0; i < LINKS_N; i++)
		if (redis_link_flush(pool->links[i]))
			fault_point(FAULT_GATEWAY_AFTER_SEND);
}

void redis_pool_query_over(struct redis_link *link, int argc, const char **argv,
			   redis_done_fn *done, void *context)
{
	if (!link || redis_link_command(link, argc, argv, NULL, done, context))
		done(context, NULL);
}

void redis_pool_query(struct redis_pool *pool, int argc, const char **argv, redis_done_fn *done,
		      void *context)
{
	redis_pool_query_over(redis_pool_pick(pool), argc, argv, done, context);
}

static void ask_done(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("ask", LOG_S("error", reply->str));
}

void redis_pool_ask(struct redis_pool *pool, int64_t coupon)
{
	char id[NUMBER_SIZE];
	const char *argv[] = { "EVAL", lua_ask, "1", ASKED_KEY, number_text(coupon, id) };

	redis_pool_query(pool, 5, argv, ask_done, NULL);
}

uint64_t redis_pool_connects_n(const struct redis_pool *pool)
{
	uint64_t n = 0;

	for (size_t i = 0; i < LINKS_N; i++)
		n += redis_link_connects(pool->links[i]);
	return n;
}

const char *redis_pool_run_id(const struct redis_pool *pool)
{
	const char *run_id = redis_link_handshake(pool->links[0])->run_id;

	for (size_t i = 0; i < LINKS_N; i++)
		if (redis_link_trouble(pool->links[i]) ||
		    strcmp(redis_link_handshake(pool->links[i])->run_id, run_id) != 0)
			return NULL;
	return run_id;
}

const char *redis_pool_decided_by(const struct redis_pool *pool)
{
	return pool->deciding ? redis_link_handshake(pool->deciding)->run_id : NULL;
}

uint64_t redis_pool_connects(const struct redis_pool *pool)
{
	return redis_link_connects(pool->links[0]);
}

int redis_pool_is_idle(const struct redis_pool *pool)
{
	for (size_t i = 0; i < LINKS_N; i++)
		if (redis_link_in_flight(pool->links[i]) > 0)
			return 0;
	return 1;
}

static const char *trouble_find(const struct redis_pool *pool,
				const char *(*trouble_of)(const struct redis_link *))
{
	const char *trouble = NULL;

	for (size_t i = 0; i < LINKS_N && !trouble; i++)
		trouble = trouble_of(pool->links[i]);
	return trouble;
}

const char *redis_pool_trouble(const struct redis_pool *pool)
{
	return trouble_find(pool, redis_link_trouble);
}

const char *redis_pool_issue_trouble(const struct redis_pool *pool)
{
	return trouble_find(pool, redis_link_issue_trouble);
}
