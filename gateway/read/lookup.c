#include "gateway/read/lookup.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/postgres/connection.h"
#include "common/resolving.h"
#include "common/trace.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define PARAMS_MAX 4
#define TICK_MS 50
#define TROUBLE_SIZE 256

enum lookup_state { LOOKUP_DOWN, LOOKUP_CONNECTING, LOOKUP_READY };

struct query {
	STAILQ_ENTRY(query) next;
	const char *sql;
	char params[PARAMS_MAX][ULID_UUID_SIZE];
	int params_n;
	lookup_fn *done;
	void *context;
	int64_t begun_ms;
};

struct lookup {
	struct event_base *base;
	char *url;
	char *host; /* its one host's name, which another thread looks up; NULL: there is none */
	struct resolving *resolving;
	int64_t timeout_ms;
	size_t waiting_max;
	size_t waiting;
	STAILQ_HEAD(, query) queries; /* the first is the one in flight, while `busy` */
	int busy;
	int closing;
	struct postgres *postgres;
	enum lookup_state state;
	int64_t since_ms;
	int64_t retry_ms;
	struct backoff backoff;
	struct event *socket; /* of the connection, for what it waits for now */
	struct event *tick;
	char trouble[TROUBLE_SIZE];
	char told[TROUBLE_SIZE]; /* the reason that was logged last, until it is ready again */
	uint64_t connects_n;
};

static void state_set(struct lookup *lookup, enum lookup_state state)
{
	static const char *const names[] = { "down", "connecting", "ready" };
	static const unsigned allowed[] = {
		[LOOKUP_DOWN] = 1u << LOOKUP_CONNECTING | 1u << LOOKUP_DOWN,
		[LOOKUP_CONNECTING] = 1u << LOOKUP_READY | 1u << LOOKUP_DOWN,
		[LOOKUP_READY] = 1u << LOOKUP_DOWN,
	};

	check(allowed[lookup->state] & 1u << state);
	trace_state(TRACE_LOOKUP, (int64_t)lookup->waiting, names[lookup->state], names[state]);
	lookup->state = state;
	lookup->since_ms = clock_monotonic_ms();
}

static void query_end(struct lookup *lookup, const PGresult *rows)
{
	struct query *query = STAILQ_FIRST(&lookup->queries);

	STAILQ_REMOVE_HEAD(&lookup->queries, next);
	lookup->waiting--;
	lookup->busy = 0;
	if (!rows)
		metrics_add(METRIC_LOOKUPS_FAILED, 1);
	query->done(query->context, rows);
	free(query);
}

/* Fails the look-ups that began before `before_ms`, not those added meanwhile. */
static void queries_fail(struct lookup *lookup, int64_t before_ms)
{
	for (size_t n = lookup->waiting;
	     n > 0 && STAILQ_FIRST(&lookup->queries)->begun_ms < before_ms; n--)
		query_end(lookup, NULL);
}

static void socket_forget(struct lookup *lookup)
{
	if (lookup->socket)
		event_free(lookup->socket);
	lookup->socket = NULL;
}

/* All waiting look-ups fail: no request waits for an unreachable database. */
static void lookup_down(struct lookup *lookup, const char *why)
{
	snprintf(lookup->trouble, sizeof(lookup->trouble), "%s", why);
	if (!lookup->closing &&
	    (lookup->state == LOOKUP_READY || strcmp(lookup->told, lookup->trouble) != 0))
		log_warn("database_lost", LOG_S("error", lookup->trouble));
	memcpy(lookup->told, lookup->trouble, sizeof(lookup->told));
	socket_forget(lookup);
	postgres_drop(lookup->postgres, NULL);
	state_set(lookup, LOOKUP_DOWN);
	lookup->retry_ms = lookup->since_ms + backoff_ms(&lookup->backoff);
	metrics_set(METRIC_DATABASE_UP, 0);
	queries_fail(lookup, INT64_MAX);
}

static void on_socket(evutil_socket_t fd, short what, void *data);

/*
 * Made anew each time, because libpq may open another socket under the same number while it
 * connects.
 */
static void socket_watch(struct lookup *lookup)
{
	short events = postgres_poll_events(lookup->postgres), what = EV_PERSIST;

	if (events & POLLIN)
		what |= EV_READ;
	if (events & POLLOUT)
		what |= EV_WRITE;
	if (lookup->socket && lookup->state == LOOKUP_READY &&
	    event_get_events(lookup->socket) == what)
		return;
	socket_forget(lookup);
	lookup->socket = event_new(lookup->base, postgres_fd(lookup->postgres), what, on_socket,
				   lookup);
	check(lookup->socket != NULL);
	event_add(lookup->socket, NULL);
}

static void query_start(struct lookup *lookup)
{
	struct query *query = STAILQ_FIRST(&lookup->queries);
	struct postgres_argument arguments[PARAMS_MAX];

	if (lookup->state != LOOKUP_READY || lookup->busy || !query)
		return;
	for (int i = 0; i < query->params_n; i++)
		arguments[i] = postgres_text(query->params[i]);
	lookup->busy = 1;
	metrics_add(METRIC_LOOKUPS, 1);
	postgres_send(lookup->postgres, query->sql, query->params_n, arguments,
		      query->begun_ms + lookup->timeout_ms);
	socket_watch(lookup);
}

static void lookup_ready(struct lookup *lookup)
{
	state_set(lookup, LOOKUP_READY);
	lookup->trouble[0] = lookup->told[0] = '\0';
	lookup->connects_n++;
	backoff_reset(&lookup->backoff);
	metrics_set(METRIC_DATABASE_UP, 1);
	log_info("database_ready", LOG_S("database", PQdb(postgres_libpq(lookup->postgres))));
	query_start(lookup);
}

/* An error that the server reports fails this look-up alone. */
static void query_ended(struct lookup *lookup)
{
	int good = postgres_failure(lookup->postgres) == POSTGRES_OK;
	PGresult *rows = postgres_result_take(lookup->postgres);

	if (!good)
		log_warn("lookup_failed", LOG_S("error", postgres_why(lookup->postgres)));
	query_end(lookup, good ? rows : NULL);
	PQclear(rows);
	query_start(lookup);
}

static void lookup_step(struct lookup *lookup)
{
	switch (postgres_step(lookup->postgres, clock_monotonic_ms())) {
	case POSTGRES_NOTHING:
		break;
	case POSTGRES_CONNECTED:
		lookup_ready(lookup);
		break;
	case POSTGRES_ENDED:
		query_ended(lookup);
		break;
	case POSTGRES_LOST:
		lookup_down(lookup, postgres_why(lookup->postgres));
		break;
	}
	if (lookup->state != LOOKUP_DOWN)
		socket_watch(lookup);
}

static void on_socket(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	lookup_step(data);
}

/*
 * The host's address: 0, or -1: it is still being looked up, or there is none and the connection is
 * down again.
 */
static int lookup_resolve(struct lookup *lookup, char address[RESOLVED_SIZE])
{
	char error[TROUBLE_SIZE];
	int rc;

	if (!lookup->resolving) {
		lookup->resolving = resolving_begin(lookup->host);
		snprintf(lookup->trouble, sizeof(lookup->trouble),
			 "the name of its host is being looked up");
	}
	if (!resolving_done(lookup->resolving))
		return -1;
	rc = resolving_take(lookup->resolving, address, error, sizeof(error));
	lookup->resolving = NULL;
	if (rc)
		lookup_down(lookup, error);
	return rc;
}

static void lookup_connect(struct lookup *lookup)
{
	char address[RESOLVED_SIZE] = "";

	if (lookup->host && lookup_resolve(lookup, address))
		return;
	state_set(lookup, LOOKUP_CONNECTING);
	if (postgres_connect(lookup->postgres, lookup->host ? address : NULL, clock_monotonic_ms()))
		lookup_down(lookup, postgres_why(lookup->postgres));
	else
		socket_watch(lookup);
}

static void on_tick(evutil_socket_t fd, short what, void *data)
{
	struct lookup *lookup = data;
	int64_t now_ms = clock_monotonic_ms();

	(void)fd;
	(void)what;
	if (lookup->state == LOOKUP_DOWN && now_ms >= lookup->retry_ms)
		lookup_connect(lookup);
	else if (lookup->state != LOOKUP_DOWN && now_ms >= postgres_deadline_ms(lookup->postgres))
		lookup_step(lookup);
	if (lookup->state != LOOKUP_READY) /* the connection's own attempt goes on */
		queries_fail(lookup, now_ms - lookup->timeout_ms);
}

/*
 * The name that is to be looked up (malloc), or NULL. Of several hosts libpq looks the names up
 * itself, one after the other.
 */
static char *host_of(const PQconninfoOption *options)
{
	const char *host = NULL, *address = NULL;

	for (; options->keyword; options++) {
		if (strcmp(options->keyword, "host") == 0)
			host = options->val;
		if (strcmp(options->keyword, "hostaddr") == 0)
			address = options->val;
	}
	return host && *host && !strchr(host, ',') && !(address && *address) &&
			       !host_is_address(host)
		       ? strdup(host)
		       : NULL;
}

struct lookup *lookup_new(struct event_base *base, const char *database_url, int64_t timeout_ms,
			  size_t waiting_max)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	struct timeval tick = { .tv_usec = TICK_MS * 1000 };
	PQconninfoOption *options;
	char *error = NULL;

	check(lookup != NULL);
	options = PQconninfoParse(database_url, &error);
	if (!options)
		log_fatal("DATABASE_URL is wrong: %s", error ? error : "out of memory");
	lookup->host = host_of(options);
	PQconninfoFree(options);
	lookup->base = base;
	lookup->url = strdup(database_url);
	check(lookup->url != NULL);
	lookup->postgres = postgres_new(&(struct postgres_options){
		.url = lookup->url,
		.application_name = "coupon-gateway",
		.connect_timeout_ms = timeout_ms,
		.statement_timeout_ms = timeout_ms,
		.lock_timeout_ms = timeout_ms / 2 +
				   1, /* fails this look-up, before the connection */
		.notice_event = "database_notice",
	});
	lookup->timeout_ms = timeout_ms;
	lookup->waiting_max = waiting_max;
	STAILQ_INIT(&lookup->queries);
	lookup->tick = event_new(base, -1, EV_PERSIST, on_tick, lookup);
	check(lookup->tick != NULL);
	event_add(lookup->tick, &tick);
	snprintf(lookup->trouble, sizeof(lookup->trouble), "connecting");
	lookup_connect(lookup);
	return lookup;
}

void lookup_free(struct lookup *lookup)
{
	if (!lookup)
		return;
	lookup->closing = 1;
	lookup_down(lookup, "closing");
	resolving_abandon(lookup->resolving);
	event_free(lookup->tick);
	postgres_free(lookup->postgres);
	free(lookup->host);
	free(lookup->url);
	free(lookup);
}

static struct query *query_new(struct lookup *lookup, const char *sql, lookup_fn *done,
			       void *context)
{
	struct query *query;

	if (lookup->waiting >= lookup->waiting_max)
		return NULL;
	query = calloc(1, sizeof(*query));
	check(query != NULL);
	query->sql = sql;
	query->done = done;
	query->context = context;
	query->begun_ms = clock_monotonic_ms();
	return query;
}

static void query_param_id(struct query *query, int64_t id)
{
	id_format(id, query->params[query->params_n++]);
}

static void query_add(struct lookup *lookup, struct query *query)
{
	lookup->waiting++;
	STAILQ_INSERT_TAIL(&lookup->queries, query, next);
	query_start(lookup);
}

int lookup_coupon(struct lookup *lookup, int64_t coupon, lookup_fn *done, void *context)
{
	struct query *query = query_new(lookup, sql_query_coupon_state, done, context);

	if (!query)
		return -1;
	query_param_id(query, coupon);
	query_add(lookup, query);
	return 0;
}

int lookup_receive(struct lookup *lookup, const struct receive *receive, lookup_fn *done,
		   void *context)
{
	struct query *query = query_new(lookup, sql_query_receive_outcome, done, context);

	if (!query)
		return -1;
	query_param_id(query, receive->coupon);
	query_param_id(query, receive->user);
	ulid_to_uuid(&receive->batch, query->params[query->params_n++]);
	snprintf(query->params[query->params_n++], sizeof(query->params[0]), "%d", receive->index);
	query_add(lookup, query);
	return 0;
}

int lookup_user(struct lookup *lookup, int64_t coupon, int64_t user, lookup_fn *done, void *context)
{
	struct query *query = query_new(lookup, sql_query_user_outcomes, done, context);

	if (!query)
		return -1;
	query_param_id(query, coupon);
	query_param_id(query, user);
	query_add(lookup, query);
	return 0;
}

int lookup_settings(struct lookup *lookup, lookup_fn *done, void *context)
{
	struct query *query = query_new(lookup, sql_query_durability, done, context);

	if (!query)
		return -1;
	query_add(lookup, query);
	return 0;
}

uint64_t lookup_connects_n(const struct lookup *lookup)
{
	return lookup->connects_n;
}

const char *lookup_trouble(const struct lookup *lookup)
{
	return lookup->state == LOOKUP_READY ? NULL : lookup->trouble;
}
