#include "gateway/admit/redis_pool.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/log.h"
#include "gateway/metrics.h"
#include "gateway/admit/script_reply.h"

#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 16
#define KEY_SIZE (ID_SIZE + 24)
#define NUMBER_SIZE 24
#define CALL_HEAD_ARGS 11 /* of EVALSHA, before the pairs of user and key */
#define CALL_ARGS_MAX (CALL_HEAD_ARGS + 2 * MESSAGE_RECEIVES_MAX)
#define NOSCRIPT_TRIES 3

/* A confirmed batch whose outbox entry is to go. */
struct removal {
	STAILQ_ENTRY(removal) next;
	int64_t coupon;
	struct ulid batch;
};

struct redis_pool {
	struct redis_link *links[LINKS_MAX];
	size_t links_n;
	struct admission *admission;
	STAILQ_HEAD(, removal) removals; /* wait for a write that goes out anyway */
};

/* A script call on its way. */
struct ticket {
	struct redis_pool *pool;
	struct redis_link *link;
	struct call *call;
	int tries;
};

struct redis_pool *redis_pool_new(struct event_base *base, const char *url, size_t connections,
				  int64_t timeout_ms)
{
	struct redis_pool *pool = calloc(1, sizeof(*pool));

	check(pool != NULL && connections >= 1 && connections <= LINKS_MAX);
	STAILQ_INIT(&pool->removals);
	for (pool->links_n = 0; pool->links_n < connections; pool->links_n++)
		pool->links[pool->links_n] = redis_link_new(base, url, timeout_ms);
	return pool;
}

void redis_pool_bind(struct redis_pool *pool, struct admission *admission)
{
	pool->admission = admission;
}

static void removals_drop(struct redis_pool *pool)
{
	struct removal *removal;

	while ((removal = STAILQ_FIRST(&pool->removals))) {
		STAILQ_REMOVE_HEAD(&pool->removals, next);
		free(removal);
	}
}

void redis_pool_free(struct redis_pool *pool)
{
	if (!pool)
		return;
	for (size_t i = 0; i < pool->links_n; i++)
		redis_link_free(pool->links[i]);
	removals_drop(pool);
	free(pool);
}

/*
 * The ready connection with the least in flight, or NULL. Redis reads a limited piece of each
 * connection before it syncs its log, so that several connections get more calls under one sync
 * than one does (measured: four with eight calls 1.2 to 1.3 times two with four).
 */
static struct redis_link *link_pick(const struct redis_pool *pool)
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

static void keys_format(int64_t coupon, char keys[3][KEY_SIZE])
{
	snprintf(keys[0], KEY_SIZE, "coupon:{%lld}", (long long)coupon);
	snprintf(keys[1], KEY_SIZE, "coupon:{%lld}:users", (long long)coupon);
	snprintf(keys[2], KEY_SIZE, "coupon:{%lld}:outbox", (long long)coupon);
}

/* Errors by which Redis says that the script did not run, or did nothing. */
static int error_means_not_run(const char *error)
{
	static const char *const prefixes[] = {
		"LOADING ",    "READONLY ",    "BUSY ",          "MISCONF ",
		"OOM ",        "NOAUTH ",      "NOPERM ",        "NOREPLICAS ",
		"MASTERDOWN ", "CLUSTERDOWN ", "MOVED ",         "ASK ",
		"TRYAGAIN ",   "NOSCRIPT ",    "ERR couponmq: ", "ERR max number of clients"
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(error, prefixes[i], strlen(prefixes[i])) == 0)
			return 1;
	return 0;
}

static void call_done(void *context, const redisReply *reply);

static int ticket_send(struct ticket *ticket)
{
	const struct call *call = ticket->call;
	char keys[3][KEY_SIZE], coupon[ID_SIZE], batch[ULID_SIZE], generation[NUMBER_SIZE],
		seq[NUMBER_SIZE];
	char users[MESSAGE_RECEIVES_MAX][ID_SIZE];
	const char *argv[CALL_ARGS_MAX] = {
		"EVALSHA", redis_link_script(ticket->link), "3",    keys[0], keys[1],
		keys[2],   redis_link_run_id(ticket->link), coupon, batch,   generation,
		seq
	};
	size_t lengths[CALL_ARGS_MAX];
	int argc = CALL_HEAD_ARGS;

	keys_format(call->coupon_id, keys);
	id_format(call->coupon_id, coupon);
	ulid_format(&call->batch, batch);
	snprintf(generation, sizeof(generation), "%lld", (long long)call->seen_generation);
	snprintf(seq, sizeof(seq), "%lld", (long long)call->seen_seq);
	for (int i = 0; i < argc; i++)
		lengths[i] = strlen(argv[i]);
	for (size_t i = 0; i < call->requests_n; i++) {
		argv[argc] = users[i];
		lengths[argc++] = id_format(call->requests[i]->user, users[i]);
		argv[argc] = request_key(call->requests[i]);
		lengths[argc++] = call->requests[i]->key_len;
	}
	fault_point(FAULT_GATEWAY_BEFORE_SEND);
	return redis_link_command(ticket->link, argc, argv, lengths, call_done, ticket);
}

/* Redis answered with an error. 1 when the call is under way again, else 0: it has ended. */
static int call_error(struct ticket *ticket, const char *error)
{
	if (strncmp(error, "NOSCRIPT", 8) == 0 && ticket->tries++ < NOSCRIPT_TRIES) {
		metrics_add(METRIC_SCRIPT_RELOADS, 1);
		redis_link_script_load(ticket->link);
		if (ticket_send(ticket) == 0)
			return 1;
	}
	log_warn("script_error", LOG_I("coupon", ticket->call->coupon_id), LOG_S("error", error));
	if (error_means_not_run(error))
		admission_not_run(ticket->pool->admission, ticket->call);
	else
		admission_lost(ticket->pool->admission, ticket->call);
	return 0;
}

static void call_refused(const struct call *call, enum call_state state)
{
	metrics_add(METRIC_CALLS_REFUSED, 1);
	log_warn("coupon_refused", LOG_I("coupon", call->coupon_id),
		 LOG_S("why", state == CALL_BEHIND ? "Redis knows less than it did"
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
	struct redis_link *link = link_pick(pool);
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

void redis_pool_outbox_remove(struct redis_pool *pool, int64_t coupon, const struct ulid *batch)
{
	struct removal *removal = malloc(sizeof(*removal));

	check(removal != NULL);
	removal->coupon = coupon;
	removal->batch = *batch;
	STAILQ_INSERT_TAIL(&pool->removals, removal, next);
}

static void removal_done(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("outbox_remove", LOG_S("error", reply->str));
}

/* Over `link`, NULL: Redis is away, and the entries stay where they are. */
static void removals_send(struct redis_pool *pool, struct redis_link *link)
{
	struct removal *removal;

	STAILQ_FOREACH (removal, &pool->removals, next) {
		char keys[3][KEY_SIZE], field[ULID_SIZE];
		const char *argv[] = { "HDEL", keys[2], field };

		if (!link)
			break;
		keys_format(removal->coupon, keys);
		ulid_format(&removal->batch, field);
		redis_link_words(link, 3, argv, removal_done, NULL);
	}
	removals_drop(pool);
}

/*
 * Nobody waits for a removal, but it costs Redis a sync of its log: it goes along with what goes
 * out anyway.
 */
void redis_pool_flush(struct redis_pool *pool)
{
	for (size_t i = 0; i < pool->links_n; i++) {
		struct redis_link *link = pool->links[i];

		if (!redis_link_has_unsent(link))
			continue;
		removals_send(pool, link);
		redis_link_flush(link);
		fault_point(FAULT_GATEWAY_AFTER_SEND);
	}
}

void redis_pool_tick(struct redis_pool *pool)
{
	removals_send(pool, link_pick(pool));
}

static void report_done(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("report", LOG_S("error", reply->str));
}

void redis_pool_report(struct redis_pool *pool, int64_t coupon, int64_t generation, int64_t seq)
{
	struct redis_link *link = link_pick(pool);
	char keys[2][KEY_SIZE], generation_text[NUMBER_SIZE], seq_text[NUMBER_SIZE];
	const char *argv[] = {
		"EVAL", lua_report, "2", keys[0], keys[1], generation_text, seq_text
	};

	if (!link)
		return;
	snprintf(keys[0], KEY_SIZE, "coupon:{%lld}", (long long)coupon);
	snprintf(keys[1], KEY_SIZE, "coupon:{%lld}:seen", (long long)coupon);
	snprintf(generation_text, sizeof(generation_text), "%lld", (long long)generation);
	snprintf(seq_text, sizeof(seq_text), "%lld", (long long)seq);
	redis_link_words(link, 7, argv, report_done, NULL);
}

static void read_send(struct redis_pool *pool, int argc, const char **argv, redis_done_fn *done,
		      void *context)
{
	struct redis_link *link = link_pick(pool);

	if (!link || redis_link_words(link, argc, argv, done, context))
		done(context, NULL);
}

void redis_pool_user(struct redis_pool *pool, const struct redis_user *asked, redis_done_fn *done,
		     void *context)
{
	struct redis_link *link = link_pick(pool);
	char keys[3][KEY_SIZE], user[ID_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	const char *argv[] = { "EVAL",
			       lua_user_state,
			       "2",
			       keys[0],
			       keys[1],
			       user,
			       link ? redis_link_run_id(link) : "",
			       generation,
			       seq };

	keys_format(asked->coupon, keys);
	id_format(asked->user, user);
	snprintf(generation, sizeof(generation), "%lld", (long long)asked->seen_generation);
	snprintf(seq, sizeof(seq), "%lld", (long long)asked->seen_seq);
	if (!link || redis_link_words(link, 9, argv, done, context))
		done(context, NULL);
}

void redis_pool_coupon(struct redis_pool *pool, int64_t coupon, redis_done_fn *done, void *context)
{
	char keys[3][KEY_SIZE];
	const char *argv[] = { "EVAL", lua_coupon_state, "1", keys[0] };

	keys_format(coupon, keys);
	read_send(pool, 4, argv, done, context);
}

void redis_pool_config(struct redis_pool *pool, const char *setting, redis_done_fn *done,
		       void *context)
{
	const char *argv[] = { "CONFIG", "GET", setting };

	read_send(pool, 3, argv, done, context);
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
	return STAILQ_EMPTY(&pool->removals);
}

const char *redis_pool_trouble(const struct redis_pool *pool)
{
	const char *trouble = NULL;

	for (size_t i = 0; i < pool->links_n && !trouble; i++)
		trouble = redis_link_trouble(pool->links[i]);
	return trouble;
}
