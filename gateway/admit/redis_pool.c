#include "gateway/admit/redis_pool.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/key.h"
#include "common/redis/reply.h"
#include "gateway/admit/script_reply.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 16
#define CALL_HEAD_ARGS 12 /* of EVALSHA, before the pairs of user and key */
#define CALL_ARGS_MAX (CALL_HEAD_ARGS + 2 * MESSAGE_RECEIVES_MAX)
#define NOSCRIPT_TRIES 3

struct redis_pool {
	struct redis_link *links[LINKS_MAX];
	size_t links_n;
	struct admission *admission;
	char unsettled_max[NUMBER_SIZE]; /* an argument of the script */
};

/* A script call in flight. */
struct ticket {
	struct redis_pool *pool;
	struct redis_link *link;
	struct call *call;
	int tries;
};

static void command_timed_out(void)
{
	metrics_add(METRIC_REDIS_TIMEOUTS, 1);
}

struct redis_pool *redis_pool_new(struct event_base *base, const char *url, size_t connections,
				  int64_t timeout_ms, int64_t unsettled_max)
{
	const struct redis_link_options options = { .base = base,
						    .url = url,
						    .timeout_ms = timeout_ms,
						    .script = lua_issue,
						    .timed_out = command_timed_out };
	struct redis_pool *pool = calloc(1, sizeof(*pool));

	check(pool != NULL && connections >= 1 && connections <= LINKS_MAX);
	number_text(unsettled_max, pool->unsettled_max);
	for (pool->links_n = 0; pool->links_n < connections; pool->links_n++)
		pool->links[pool->links_n] = redis_link_new(&options);
	return pool;
}

void redis_pool_bind(struct redis_pool *pool, struct admission *admission)
{
	pool->admission = admission;
}

void redis_pool_free(struct redis_pool *pool)
{
	if (!pool)
		return;
	for (size_t i = 0; i < pool->links_n; i++)
		redis_link_free(pool->links[i]);
	free(pool);
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

	for (size_t i = 0; i < pool->links_n; i++) {
		struct redis_link *link = pool->links[i];

		if (!redis_link_trouble(link) &&
		    (!best || redis_link_in_flight(link) < redis_link_in_flight(best)))
			best = link;
	}
	return best;
}

static void call_done(void *context, const redisReply *reply);

static int ticket_send(struct ticket *ticket)
{
	const struct call *call = ticket->call;
	char coupon[ID_SIZE], batch[ULID_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	struct coupon_keys keys;
	const char *argv[CALL_ARGS_MAX] = { "EVALSHA",
					    redis_link_script(ticket->link),
					    "3",
					    keys.texts[0],
					    keys.texts[1],
					    keys.texts[2],
					    redis_link_run_id(ticket->link),
					    coupon,
					    batch,
					    number_text(call->seen_generation, generation),
					    number_text(call->seen_seq, seq),
					    ticket->pool->unsettled_max };
	size_t lengths[CALL_ARGS_MAX];
	int argc = CALL_HEAD_ARGS;

	coupon_keys_make(&keys, call->coupon_id, COUPON_KEYS_ISSUE);
	id_format(call->coupon_id, coupon);
	ulid_format(&call->batch, batch);
	for (int i = 0; i < argc; i++)
		lengths[i] = strlen(argv[i]);
	for (size_t i = 0; i < call->requests_n; i++) {
		argv[argc] = call->requests[i]->user.text;
		lengths[argc++] = call->requests[i]->user.len;
		argv[argc] = request_key(call->requests[i]);
		lengths[argc++] = call->requests[i]->key_len;
	}
	fault_point(FAULT_GATEWAY_BEFORE_SEND);
	return redis_link_command(ticket->link, argc, argv, lengths, call_done, ticket);
}

/* Redis replied an error. 1 when the call was sent again, else 0: it has ended. */
static int call_error(struct ticket *ticket, const char *error)
{
	if (strncmp(error, "NOSCRIPT", 8) == 0 && ticket->tries++ < NOSCRIPT_TRIES) {
		metrics_add(METRIC_SCRIPT_RELOADS, 1);
		redis_link_script_load(ticket->link);
		if (ticket_send(ticket) == 0)
			return 1;
	}
	log_warn("script_error", LOG_I("coupon", ticket->call->coupon_id), LOG_S("error", error));
	if (redis_error_means_not_run(error))
		admission_not_run(ticket->pool->admission, ticket->call);
	else
		admission_lost(ticket->pool->admission, ticket->call);
	return 0;
}

static void call_refused(const struct call *call, enum call_state state)
{
	metrics_add(METRIC_CALLS_REFUSED, 1);
	log_warn("coupon_refused", LOG_I("coupon", call->coupon_id),
		 LOG_S("why", state == CALL_BEHIND ? "Redis is behind what was seen"
						   : "not verified since Redis started"));
}

static void call_replied(struct ticket *ticket, const redisReply *reply)
{
	struct call *call = ticket->call;
	struct call_reply decoded;

	if (script_reply_decode(reply, call->requests_n, &decoded)) {
		log_error("script_reply", LOG_I("coupon", call->coupon_id),
			  LOG_S("error", "not what issue.lua returns"));
		admission_lost(ticket->pool->admission, call);
		return;
	}
	if (decoded.state == CALL_UNVERIFIED || decoded.state == CALL_BEHIND)
		call_refused(call, decoded.state);
	admission_replied(ticket->pool->admission, call, &decoded);
}

static void call_done(void *context, const redisReply *reply)
{
	struct ticket *ticket = context;

	fault_point(FAULT_GATEWAY_AFTER_REPLY);
	if (!reply) {
		metrics_add(METRIC_CALLS_LOST, 1);
		admission_lost(ticket->pool->admission, ticket->call);
	} else if (reply->type == REDIS_REPLY_ERROR) {
		if (call_error(ticket, reply->str))
			return;
	} else {
		call_replied(ticket, reply);
	}
	free(ticket);
}

int redis_pool_send(struct redis_pool *pool, struct call *call)
{
	struct redis_link *link = redis_pool_pick(pool);
	struct ticket *ticket;

	if (!link)
		return -1;
	ticket = malloc(sizeof(*ticket));
	check(ticket != NULL);
	*ticket = (struct ticket){ .pool = pool, .link = link, .call = call };
	if (ticket_send(ticket)) {
		free(ticket);
		return -1;
	}
	metrics_add(METRIC_CALLS, 1);
	metrics_add(METRIC_CALL_REQUESTS, (int64_t)call->requests_n);
	return 0;
}

void redis_pool_flush(struct redis_pool *pool)
{
	for (size_t i = 0; i < pool->links_n; i++) {
		struct redis_link *link = pool->links[i];

		if (!redis_link_has_unsent(link))
			continue;
		redis_link_flush(link);
		fault_point(FAULT_GATEWAY_AFTER_SEND);
	}
}

static void report_done(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("report", LOG_S("error", reply->str));
}

void redis_pool_report(struct redis_pool *pool, int64_t coupon, int64_t generation, int64_t seq)
{
	struct redis_link *link = redis_pool_pick(pool);
	char keys[2][COUPON_KEY_SIZE], generation_text[NUMBER_SIZE], seq_text[NUMBER_SIZE];
	const char *argv[] = { "EVAL",
			       lua_report,
			       "2",
			       coupon_key(coupon, COUPON_KEY_COUPON, keys[0]),
			       coupon_key(coupon, COUPON_KEY_SEEN, keys[1]),
			       number_text(generation, generation_text),
			       number_text(seq, seq_text) };

	if (link)
		redis_link_words(link, 7, argv, report_done, NULL);
}

uint64_t redis_pool_connects(const struct redis_pool *pool)
{
	return redis_link_connects(pool->links[0]);
}

int redis_pool_is_idle(const struct redis_pool *pool)
{
	for (size_t i = 0; i < pool->links_n; i++)
		if (redis_link_in_flight(pool->links[i]) > 0)
			return 0;
	return 1;
}

const char *redis_pool_trouble(const struct redis_pool *pool)
{
	const char *trouble = NULL;

	for (size_t i = 0; i < pool->links_n && !trouble; i++)
		trouble = redis_link_trouble(pool->links[i]);
	return trouble;
}
