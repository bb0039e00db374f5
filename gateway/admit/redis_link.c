#include "gateway/admit/redis_link.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/redis/redis.h"
#include "common/redis/sentinel.h"
#include "common/redis/redis_tls.h"
#include "common/resolving.h"
#include "common/serve/loop.h"
#include "gateway/metrics.h"

#include <hiredis/async.h>
#include <hiredis/adapters/libevent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define TROUBLE_SIZE REDIS_WHY_SIZE
#define TICK_MS 50
#define PROCESS_MS 200       /* between two looks at the process and its lease */
#define LATE_DOUBLINGS_MAX 3 /* of the time to connect */

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_READY };

/*
 * One command in flight. Replies arrive in the order of the commands, so the first is always the
 * oldest.
 */
struct link_command {
	STAILQ_ENTRY(link_command) next;
	struct redis_link *link;
	int64_t sent_ms;
	redis_done_fn *done;
	void *context;
};

struct redis_link {
	struct redis_link_options options;
	struct redis_url url;
	struct sentinels *sentinels; /* NULL: none */
	char host[SENTINEL_HOST_SIZE];
	int port;
	redisAsyncContext *async; /* NULL when down */
	enum link_state state;
	int64_t since_ms; /* when the state began */
	int late_n;       /* attempts in a row to connect that took too long */
	int64_t retry_ms; /* LINK_DOWN: when to connect again */
	struct backoff backoff;
	struct ticker *ticker; /* while it is not ready, or a command is in flight */
	STAILQ_HEAD(, link_command) commands;
	size_t in_flight;
	struct redis_handshake handshake;
	int64_t process_ms; /* when it was asked for the process last */
	int is_asking;      /* for it, or the first handshake is not over */
	/*
	 * NULL, or why nothing is sent any more, a constant: it is closed when all is answered, so
	 * that what the old master has accepted is known.
	 */
	const char *unusable;
	char trouble[TROUBLE_SIZE];
	char logged[TROUBLE_SIZE]; /* the last reason in the log, until it is ready again */
	uint64_t connects;
	int unflushed;
	struct resolving *resolving; /* NULL: nothing is being looked up */
};

static void state_set(struct redis_link *link, enum link_state state)
{
	static const char *const names[] = { "down", "connecting", "ready" };
	static const unsigned allowed[] = {
		[LINK_DOWN] = 1u << LINK_CONNECTING | 1u << LINK_DOWN,
		[LINK_CONNECTING] = 1u << LINK_READY | 1u << LINK_DOWN,
		[LINK_READY] = 1u << LINK_DOWN,
	};

	check(allowed[link->state] & 1u << state);
	trace_state(TRACE_REDIS, link->port, names[link->state], names[state]);
	link->state = state;
	link->since_ms = clock_monotonic_ms();
}

static void link_down(struct redis_link *link, const char *why)
{
	if (link->state == LINK_READY || strcmp(link->logged, why) != 0)
		log_warn("redis_lost", LOG_S("host", link->host), LOG_I("port", link->port),
			 LOG_S("error", why));
	snprintf(link->logged, sizeof(link->logged), "%s", why);
	snprintf(link->trouble, sizeof(link->trouble), "%s", why);
	link->async = NULL;
	link->unflushed = 0;
	link->unusable = NULL;
	link->is_asking = 0;
	state_set(link, LINK_DOWN);
	link->retry_ms = link->since_ms + backoff_connect_ms(&link->backoff);
	ticker_start(link->ticker);
}

/* Ends the connection from outside its callbacks; every command in flight ends as lost. */
static void link_cut(struct redis_link *link, const char *why)
{
	redisAsyncContext *async = link->async;

	if (!async)
		return;
	link_down(link, why);
	async->data = NULL;
	redisAsyncFree(async);
}

static void command_reply(redisAsyncContext *async, void *replied, void *data)
{
	struct link_command *command = data;
	struct redis_link *link = command->link;
	const redisReply *reply = replied;

	(void)async;
	if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "READONLY", 8) == 0)
		link->unusable = "it is a replica";
	check(STAILQ_FIRST(&link->commands) == command);
	STAILQ_REMOVE_HEAD(&link->commands, next);
	link->in_flight--;
	command->done(command->context, reply);
	free(command);
}

int redis_link_command(struct redis_link *link, int argc, const char **argv, const size_t *lengths,
		       redis_done_fn *done, void *context)
{
	struct link_command *command;

	if (!link->async)
		return -1;
	command = checked(malloc(sizeof(*command)));
	*command = (struct link_command){
		.link = link, .sent_ms = clock_monotonic_ms(), .done = done, .context = context
	};
	if (redisAsyncCommandArgv(link->async, command_reply, command, argc, argv, lengths) !=
	    REDIS_OK) {
		free(command);
		return -1;
	}
	STAILQ_INSERT_TAIL(&link->commands, command, next);
	link->unflushed = 1;
	link->in_flight++;
	ticker_start(link->ticker);
	return 0;
}

static void handshake_step(void *context, const redisReply *reply)
{
	struct redis_link *link = context;
	struct redis_handshake *handshake = &link->handshake;
	const char *words[REDIS_HANDSHAKE_WORDS];
	char before[REDIS_RUN_ID_SIZE];
	int n;

	if (link->state == LINK_DOWN)
		return;
	memcpy(before, handshake->run_id, sizeof(before));
	n = redis_handshake_next(handshake, reply, words);
	if (n > 0) {
		redis_link_command(link, n, words, NULL, handshake_step, link);
		return;
	}
	link->is_asking = 0;
	if (n < 0 && link->state == LINK_CONNECTING) {
		/* The next tick closes it: hiredis does not allow that inside a callback. */
		snprintf(link->trouble, sizeof(link->trouble), "%s", handshake->why);
		link->since_ms = INT64_MIN / 2;
	} else if (n < 0) {
		if (handshake->is_replica)
			link->unusable = "it is a replica";
	} else if (link->state == LINK_CONNECTING) {
		state_set(link, LINK_READY);
		link->late_n = 0;
		link->connects++;
		backoff_reset(&link->backoff);
		link->trouble[0] = link->logged[0] = '\0';
		log_info("redis_ready", LOG_S("host", link->host), LOG_I("port", link->port),
			 LOG_S("run_id", handshake->run_id));
	} else if (strcmp(handshake->run_id, before) != 0) {
		/* It has been promoted, or has a new term. */
		link->connects++;
		log_info("redis_process", LOG_S("host", link->host), LOG_I("port", link->port),
			 LOG_S("run_id", handshake->run_id));
	}
}

static void handshake_begin(struct redis_link *link, enum redis_step first, enum redis_step last)
{
	link->process_ms = clock_monotonic_ms();
	link->is_asking = 1;
	redis_handshake_begin(&link->handshake, first, last);
	handshake_step(link, NULL);
}

void redis_link_process_read(struct redis_link *link)
{
	if (link->state == LINK_READY && !link->unusable && !link->is_asking &&
	    clock_monotonic_ms() - link->process_ms >= PROCESS_MS)
		handshake_begin(link, REDIS_STEP_LEASE, REDIS_STEP_PROCESS);
}

/* Where Redis does not load the script, it replies NOSCRIPT again. */
static void script_done(void *link, const redisReply *reply)
{
	(void)link;
	(void)reply;
}

void redis_link_script_load(struct redis_link *link)
{
	const char *argv[] = { "SCRIPT", "LOAD", link->options.script };

	redis_link_command(link, 3, argv, NULL, script_done, link);
}

static void on_connect(const redisAsyncContext *async, int status)
{
	struct redis_link *link = async->data;
	char error[TROUBLE_SIZE];

	if (!link)
		return;
	if (status != REDIS_OK)
		link_down(link, async->errstr); /* hiredis frees the context itself */
	else if (link->url.is_tls && redis_tls_begin(&link->async->c, link->host, error))
		link_cut(link, error);
	else
		handshake_begin(link, REDIS_STEP_AUTH, REDIS_STEP_PROBE); /* sent after TLS' */
}

static void on_disconnect(const redisAsyncContext *async, int status)
{
	struct redis_link *link = async->data;

	if (link)
		link_down(link, status == REDIS_OK ? "disconnected" : async->errstr);
}

static void link_connect(struct redis_link *link)
{
	char address[RESOLVED_SIZE], error[TROUBLE_SIZE], why[SENTINEL_ERROR_SIZE];
	struct sentinels_view view;
	redisAsyncContext *async;
	int is_address, found = 1;

	/* Whom the Sentinels name. While a name is being looked up, it stays. */
	if (link->sentinels && !link->resolving) {
		if (sentinels_view(link->sentinels, 0, &view, why)) {
			link_down(link, why);
			return;
		}
		memcpy(link->host, view.host, sizeof(link->host));
		link->port = view.port;
	}

	is_address = host_is_address(link->host);
	if (!is_address)
		found = resolving_step(&link->resolving, link->host, address, error, sizeof(error));
	if (found < 0)
		link_down(link, error);
	else if (found == 0)
		snprintf(link->trouble, sizeof(link->trouble), "%s", error);
	if (found <= 0)
		return;

	async = redisAsyncConnect(is_address ? link->host : address, link->port);
	if (!async || async->err) {
		link_down(link, async ? async->errstr : "out of memory");
		if (async)
			redisAsyncFree(async);
		return;
	}
	async->data = link;
	link->async = async;
	state_set(link, LINK_CONNECTING);
	redisLibeventAttach(async, link->options.base);
	redisAsyncSetConnectCallback(async, on_connect);
	redisAsyncSetDisconnectCallback(async, on_disconnect);
}

int redis_link_flush(struct redis_link *link)
{
	if (!link->unflushed || link->state != LINK_READY)
		return 0;
	link->unflushed = 0;
	redisAsyncHandleWrite(link->async);
	return 1;
}

size_t redis_link_in_flight(const struct redis_link *link)
{
	return link->in_flight;
}

const struct redis_handshake *redis_link_handshake(const struct redis_link *link)
{
	return &link->handshake;
}

uint64_t redis_link_connects(const struct redis_link *link)
{
	return link->connects;
}

const char *redis_link_trouble(const struct redis_link *link)
{
	if (link->state == LINK_READY)
		return link->unusable;
	return link->trouble[0] ? link->trouble : "connecting";
}

const char *redis_link_issue_trouble(const struct redis_link *link)
{
	const char *trouble = redis_link_trouble(link);

	return trouble || link->handshake.lease_holds
		       ? trouble
		       : "this master issues nothing yet: it has no lease, or its lease has ended";
}

#define MOVED_TEXT "the Sentinels name another master"

/* Whether a majority does. */
static int has_moved(const struct redis_link *link)
{
	struct sentinels_view view;
	char error[SENTINEL_ERROR_SIZE];

	return link->sentinels && sentinels_view(link->sentinels, 0, &view, error) == 0 &&
	       view.is_agreed && (view.port != link->port || strcmp(view.host, link->host) != 0);
}

static int on_tick(void *context)
{
	struct redis_link *link = context;
	struct link_command *oldest = STAILQ_FIRST(&link->commands);
	int64_t now_ms = clock_monotonic_ms();
	char why[TROUBLE_SIZE];

	if (link->state == LINK_DOWN && now_ms >= link->retry_ms) {
		link_connect(link);
	} else if (link->state == LINK_CONNECTING &&
		   now_ms - link->since_ms > link->options.timeout_ms << link->late_n) {
		/*
		 * When many processes connect at once, breaking attempts off and repeating them
		 * only adds to the load, so the next one has more time.
		 */
		if (link->since_ms >= 0 && link->late_n < LATE_DOUBLINGS_MAX)
			link->late_n++;
		/* The trouble may still be that of the attempt before. */
		snprintf(why, sizeof(why), "%s",
			 link->since_ms < 0 ? link->trouble : "connecting takes too long");
		link_cut(link, why);
	} else if (link->state == LINK_CONNECTING && has_moved(link)) {
		link_cut(link, MOVED_TEXT);
	} else if (link->state == LINK_READY && oldest &&
		   now_ms - oldest->sent_ms > link->options.timeout_ms) {
		metrics_add(METRIC_REDIS_TIMEOUTS, 1);
		link_cut(link, "a command was not answered in time");
	} else if (link->state == LINK_READY && link->unusable) {
		if (link->in_flight == 0)
			link_cut(link, link->unusable);
	} else if (link->state == LINK_READY && link->sentinels) {
		redis_link_process_read(link);
		redis_link_flush(link);
		if (has_moved(link))
			link->unusable = MOVED_TEXT;
	}
	return link->state != LINK_READY || link->in_flight > 0 || link->unusable ||
	       link->sentinels;
}

struct redis_link *redis_link_new(const struct redis_link_options *options)
{
	struct redis_link *link = checked(calloc(1, sizeof(*link)));

	link->options = *options;
	STAILQ_INIT(&link->commands);
	redis_url_need(&link->url, options->url);
	link->handshake.url = &link->url;
	link->handshake.script = options->script;
	if (link->url.sentinels_n > 0)
		link->sentinels = sentinels_of(&link->url);
	else
		snprintf(link->host, sizeof(link->host), "%s", link->url.host);
	link->port = link->url.port;
	link->ticker = ticker_new(options->base, TICK_MS, on_tick, link);
	ticker_start(link->ticker);
	snprintf(link->trouble, sizeof(link->trouble), "connecting");
	link_connect(link);
	return link;
}
