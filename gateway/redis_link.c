#include "gateway/redis_link.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/redis_url.h"
#include "gateway/metrics.h"
#include "gateway/script_reply.h"

#include "embed.h"

#include <hiredis/async.h>
#include <hiredis/adapters/libevent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_ID_SIZE 64
#define SHA_SIZE 41
#define TROUBLE_SIZE 256
#define KEY_SIZE (ID_SIZE + 24)
#define NUMBER_SIZE 24
#define CALL_ARGS_MAX (11 + 2 * MESSAGE_RECEIVES_MAX)
#define NOSCRIPT_TRIES 3
#define TICK_MS 50

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_READY };

/* One command in flight. Replies come in the order of the commands, so the first is always the oldest. */
struct command {
	STAILQ_ENTRY(command) next;
	struct redis_link *link;
	int64_t sent_ms;
	void (*done)(struct command *command, redisReply *reply); /* NULL reply: lost */
	struct call *call;
	int tries;
	redis_reply_fn *read_done;
	void *read_context;
};

/* A confirmed batch whose outbox entry is to go. */
struct removal {
	STAILQ_ENTRY(removal) next;
	int64_t coupon;
	struct ulid batch;
};

struct redis_link {
	struct event_base *base;
	struct redis_url url;
	int64_t timeout_ms;
	struct admission *admission;
	redisAsyncContext *async; /* NULL when down */
	enum link_state state;
	int64_t since_ms; /* of the state */
	int64_t retry_ms; /* LINK_DOWN: when to connect again */
	struct backoff backoff;
	struct event *tick;
	STAILQ_HEAD(, command) commands;
	size_t in_flight;
	STAILQ_HEAD(, removal) removals; /* wait for a write that goes out anyway, at most TICK_MS */
	char run_id[RUN_ID_SIZE];
	char sha[SHA_SIZE];
	char trouble[TROUBLE_SIZE];
	int unflushed;
};

static void state_set(struct redis_link *link, enum link_state state)
{
	link->state = state;
	link->since_ms = clock_monotonic_ms();
}

/* Their entries stay in the outbox; the keeper sends them once more, which does no harm. */
static void removals_drop(struct redis_link *link)
{
	struct removal *removal;

	while ((removal = STAILQ_FIRST(&link->removals))) {
		STAILQ_REMOVE_HEAD(&link->removals, next);
		free(removal);
	}
}

static void link_down(struct redis_link *link, const char *why)
{
	removals_drop(link);
	if (link->state == LINK_READY || !link->trouble[0])
		log_warn("redis_lost", LOG_S("host", link->url.host), LOG_I("port", link->url.port), LOG_S("error", why));
	snprintf(link->trouble, sizeof(link->trouble), "%s", why);
	link->async = NULL;
	link->unflushed = 0;
	state_set(link, LINK_DOWN);
	link->retry_ms = link->since_ms + backoff_ms(&link->backoff);
}

/* Ends the connection from outside a callback of its own; every command in flight ends as lost. */
static void link_cut(struct redis_link *link, const char *why)
{
	redisAsyncContext *async = link->async;

	if (!async)
		return;
	link_down(link, why);
	async->data = NULL;
	redisAsyncFree(async);
}

static void command_reply(redisAsyncContext *async, void *reply, void *data)
{
	struct command *command = data;
	struct redis_link *link = command->link;

	(void)async;
	check(STAILQ_FIRST(&link->commands) == command);
	STAILQ_REMOVE_HEAD(&link->commands, next);
	link->in_flight--;
	command->done(command, reply);
	free(command);
}

static struct command *command_new(struct redis_link *link, void (*done)(struct command *, redisReply *))
{
	struct command *command = calloc(1, sizeof(*command));

	check(command != NULL);
	command->link = link;
	command->sent_ms = clock_monotonic_ms();
	command->done = done;
	return command;
}

/* Appends the command to the connection; 0, or -1 (and it is freed) when there is none. */
static int command_send(struct command *command, int argc, const char **argv, const size_t *lengths)
{
	struct redis_link *link = command->link;

	STAILQ_INSERT_TAIL(&link->commands, command, next);
	if (link->async && redisAsyncCommandArgv(link->async, command_reply, command, argc, argv, lengths) == REDIS_OK) {
		link->unflushed = 1;
		link->in_flight++;
		return 0;
	}
	STAILQ_REMOVE(&link->commands, command, command, next);
	free(command);
	return -1;
}

static int command_send_words(struct command *command, int argc, const char **argv)
{
	size_t lengths[16];

	check(argc <= 16);
	for (int i = 0; i < argc; i++)
		lengths[i] = strlen(argv[i]);
	return command_send(command, argc, argv, lengths);
}

/* A handshake step failed; the connection is given up at the next tick, not inside its own callback. */
static void handshake_fail(struct redis_link *link, const char *step, const redisReply *reply)
{
	snprintf(link->trouble, sizeof(link->trouble), "%s: %s", step, reply && reply->str ? reply->str : "no reply");
	link->since_ms = INT64_MIN / 2;
}

static void auth_done(struct command *command, redisReply *reply)
{
	if (!reply || reply->type == REDIS_REPLY_ERROR)
		handshake_fail(command->link, "AUTH", reply);
}

static void select_done(struct command *command, redisReply *reply)
{
	if (!reply || reply->type == REDIS_REPLY_ERROR)
		handshake_fail(command->link, "SELECT", reply);
}

static void info_done(struct command *command, redisReply *reply)
{
	struct redis_link *link = command->link;
	const char *at = reply && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, "run_id:") : NULL;

	link->run_id[0] = '\0';
	if (!at || sscanf(at, "run_id:%63[0-9a-f]", link->run_id) != 1)
		handshake_fail(link, "INFO", reply);
}

static void script_done(struct command *command, redisReply *reply)
{
	struct redis_link *link = command->link;

	if (!reply || reply->type != REDIS_REPLY_STRING || reply->len >= SHA_SIZE) {
		handshake_fail(link, "SCRIPT LOAD", reply);
		return;
	}
	memcpy(link->sha, reply->str, reply->len + 1);
	if (link->state == LINK_CONNECTING && link->run_id[0] && link->since_ms > 0) {
		state_set(link, LINK_READY);
		backoff_reset(&link->backoff);
		link->trouble[0] = '\0';
		log_info("redis_ready", LOG_S("host", link->url.host), LOG_I("port", link->url.port),
			 LOG_S("run_id", link->run_id));
	}
}

static void script_load(struct redis_link *link)
{
	const char *argv[] = { "SCRIPT", "LOAD", lua_issue };

	command_send_words(command_new(link, script_done), 3, argv);
}

static void handshake(struct redis_link *link)
{
	char database[16];
	const char *auth[] = { "AUTH", link->url.user ? link->url.user : link->url.password, link->url.password };
	const char *choose[] = { "SELECT", database };
	const char *info[] = { "INFO", "server" };

	snprintf(database, sizeof(database), "%d", link->url.database);
	if (link->url.password)
		command_send_words(command_new(link, auth_done), link->url.user ? 3 : 2, auth);
	if (link->url.database)
		command_send_words(command_new(link, select_done), 2, choose);
	command_send_words(command_new(link, info_done), 2, info);
	script_load(link);
}

static void on_connect(const redisAsyncContext *async, int status)
{
	struct redis_link *link = async->data;

	if (!link)
		return;
	if (status == REDIS_OK)
		handshake(link);
	else
		link_down(link, async->errstr); /* hiredis frees the context itself */
}

static void on_disconnect(const redisAsyncContext *async, int status)
{
	struct redis_link *link = async->data;

	if (link)
		link_down(link, status == REDIS_OK ? "disconnected" : async->errstr);
}

static void link_connect(struct redis_link *link)
{
	redisAsyncContext *async = redisAsyncConnect(link->url.host, link->url.port);

	if (!async || async->err) {
		link_down(link, async ? async->errstr : "out of memory");
		if (async)
			redisAsyncFree(async);
		return;
	}
	async->data = link;
	link->async = async;
	state_set(link, LINK_CONNECTING);
	redisLibeventAttach(async, link->base);
	redisAsyncSetConnectCallback(async, on_connect);
	redisAsyncSetDisconnectCallback(async, on_disconnect);
}

/* Errors by which Redis says that the script did not run, or did nothing. */
static int error_means_not_run(const char *error)
{
	static const char *const prefixes[] = { "LOADING ", "READONLY ", "BUSY ", "MISCONF ", "OOM ", "NOAUTH ", "NOPERM ",
						"NOREPLICAS ", "MASTERDOWN ", "CLUSTERDOWN ", "MOVED ", "ASK ", "TRYAGAIN ",
						"NOSCRIPT ", "ERR couponmq: ", "ERR max number of clients" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(error, prefixes[i], strlen(prefixes[i])) == 0)
			return 1;
	return 0;
}

static int call_send(struct redis_link *link, struct call *call, int tries);

static void call_error(struct redis_link *link, struct call *call, int tries, const char *error)
{
	if (strncmp(error, "NOSCRIPT", 8) == 0 && tries < NOSCRIPT_TRIES) {
		metrics_add(METRIC_SCRIPT_RELOADS, 1);
		script_load(link);
		if (call_send(link, call, tries + 1) == 0)
			return;
	}
	log_warn("script_error", LOG_I("coupon", call->coupon_id), LOG_S("error", error));
	if (error_means_not_run(error))
		admission_not_run(link->admission, call);
	else
		admission_lost(link->admission, call);
}

static void call_done(struct command *command, redisReply *reply)
{
	struct redis_link *link = command->link;
	struct call *call = command->call;
	struct call_reply decoded;

	if (!reply) {
		metrics_add(METRIC_CALLS_LOST, 1);
		admission_lost(link->admission, call);
	} else if (reply->type == REDIS_REPLY_ERROR) {
		call_error(link, call, command->tries, reply->str);
	} else if (script_reply_decode(reply, call->requests_n, &decoded)) {
		log_error("script_reply", LOG_I("coupon", call->coupon_id), LOG_S("error", "not what issue.lua returns"));
		admission_lost(link->admission, call);
	} else {
		if (decoded.state == CALL_UNVERIFIED || decoded.state == CALL_BEHIND) {
			metrics_add(METRIC_CALLS_REFUSED, 1);
			log_warn("coupon_refused", LOG_I("coupon", call->coupon_id),
				 LOG_S("why", decoded.state == CALL_BEHIND ? "Redis knows less than it did" :
									     "not verified since Redis started"));
		}
		admission_replied(link->admission, call, &decoded);
	}
}

static void keys_format(int64_t coupon, char keys[3][KEY_SIZE])
{
	snprintf(keys[0], KEY_SIZE, "coupon:{%lld}", (long long)coupon);
	snprintf(keys[1], KEY_SIZE, "coupon:{%lld}:users", (long long)coupon);
	snprintf(keys[2], KEY_SIZE, "coupon:{%lld}:outbox", (long long)coupon);
}

static int call_send(struct redis_link *link, struct call *call, int tries)
{
	char keys[3][KEY_SIZE], coupon[ID_SIZE], batch[ULID_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	char users[MESSAGE_RECEIVES_MAX][ID_SIZE];
	const char *argv[CALL_ARGS_MAX] = { "EVALSHA", link->sha, "3", keys[0], keys[1], keys[2],
					    link->run_id, coupon, batch, generation, seq };
	size_t lengths[CALL_ARGS_MAX];
	struct command *command = command_new(link, call_done);
	int argc = 11;

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
	command->call = call;
	command->tries = tries;
	return command_send(command, argc, argv, lengths);
}

int redis_link_send(struct redis_link *link, struct call *call)
{
	if (link->state != LINK_READY)
		return -1;
	metrics_add(METRIC_CALLS, 1);
	metrics_add(METRIC_CALL_REQUESTS, (int64_t)call->requests_n);
	return call_send(link, call, 0);
}

static void ignore_done(struct command *command, redisReply *reply)
{
	(void)command;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("outbox_remove", LOG_S("error", reply->str));
}

void redis_link_outbox_remove(struct redis_link *link, int64_t coupon, const struct ulid *batch)
{
	struct removal *removal;

	if (link->state != LINK_READY)
		return;
	removal = malloc(sizeof(*removal));
	check(removal != NULL);
	removal->coupon = coupon;
	removal->batch = *batch;
	STAILQ_INSERT_TAIL(&link->removals, removal, next);
}

static void removals_send(struct redis_link *link)
{
	struct removal *removal;

	while ((removal = STAILQ_FIRST(&link->removals))) {
		char keys[3][KEY_SIZE], field[ULID_SIZE];
		const char *argv[] = { "HDEL", keys[2], field };

		keys_format(removal->coupon, keys);
		ulid_format(&removal->batch, field);
		command_send_words(command_new(link, ignore_done), 3, argv);
		STAILQ_REMOVE_HEAD(&link->removals, next);
		free(removal);
	}
}

static void read_done(struct command *command, redisReply *reply)
{
	command->read_done(command->read_context, reply);
}

static void read_send(struct redis_link *link, int argc, const char **argv, redis_reply_fn *done, void *context)
{
	struct command *command;

	if (link->state == LINK_READY) {
		command = command_new(link, read_done);
		command->read_done = done;
		command->read_context = context;
		if (command_send_words(command, argc, argv) == 0)
			return;
	}
	done(context, NULL);
}

void redis_link_user(struct redis_link *link, int64_t coupon, int64_t user, redis_reply_fn *done, void *context)
{
	char keys[3][KEY_SIZE], field[ID_SIZE];
	const char *argv[] = { "HGET", keys[1], field };

	keys_format(coupon, keys);
	id_format(user, field);
	read_send(link, 3, argv, done, context);
}

void redis_link_coupon(struct redis_link *link, int64_t coupon, redis_reply_fn *done, void *context)
{
	char keys[3][KEY_SIZE];
	const char *argv[] = { "EVAL", lua_coupon_state, "1", keys[0] };

	keys_format(coupon, keys);
	read_send(link, 4, argv, done, context);
}

/* Nobody waits for a removal, but it costs Redis a sync of its log: it goes along with what goes out anyway. */
void redis_link_flush(struct redis_link *link)
{
	if (!link->unflushed || link->state != LINK_READY)
		return;
	removals_send(link);
	link->unflushed = 0;
	redisAsyncHandleWrite(link->async);
}

size_t redis_link_in_flight(const struct redis_link *link)
{
	return link->in_flight;
}

int redis_link_is_idle(const struct redis_link *link)
{
	return link->in_flight == 0 && STAILQ_EMPTY(&link->removals);
}

const char *redis_link_trouble(const struct redis_link *link)
{
	return link->state == LINK_READY ? NULL : link->trouble[0] ? link->trouble : "connecting";
}

static void on_tick(evutil_socket_t fd, short what, void *data)
{
	struct redis_link *link = data;
	struct command *oldest = STAILQ_FIRST(&link->commands);
	int64_t now_ms = clock_monotonic_ms();
	char why[TROUBLE_SIZE];

	(void)fd;
	(void)what;
	if (link->state == LINK_DOWN && now_ms >= link->retry_ms) {
		link_connect(link);
	} else if (link->state == LINK_CONNECTING && now_ms - link->since_ms > link->timeout_ms) {
		snprintf(why, sizeof(why), "%s", link->trouble[0] ? link->trouble : "connecting takes too long");
		link_cut(link, why);
	} else if (link->state == LINK_READY && oldest && now_ms - oldest->sent_ms > link->timeout_ms) {
		metrics_add(METRIC_REDIS_TIMEOUTS, 1);
		link_cut(link, "a command is not answered in time");
	} else if (link->state == LINK_READY) {
		removals_send(link);
	}
}

struct redis_link *redis_link_new(struct event_base *base, const char *url, int64_t timeout_ms)
{
	struct redis_link *link = calloc(1, sizeof(*link));
	struct timeval tick = { .tv_usec = TICK_MS * 1000 };

	check(link != NULL);
	link->base = base;
	link->timeout_ms = timeout_ms;
	STAILQ_INIT(&link->commands);
	STAILQ_INIT(&link->removals);
	if (redis_url_parse(&link->url, url))
		log_fatal("REDIS_URL is \"%s\": allowed is redis://[user:password@]host[:port][/database]", url);
	link->tick = event_new(base, -1, EV_PERSIST, on_tick, link);
	check(link->tick != NULL);
	event_add(link->tick, &tick);
	snprintf(link->trouble, sizeof(link->trouble), "connecting");
	link_connect(link);
	return link;
}

void redis_link_bind(struct redis_link *link, struct admission *admission)
{
	link->admission = admission;
}

void redis_link_free(struct redis_link *link)
{
	if (!link)
		return;
	link_cut(link, "closing");
	event_free(link->tick);
	redis_url_fini(&link->url);
	free(link);
}
