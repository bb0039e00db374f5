#include "gateway/read/lookup.h"

#include "common/check.h"
#include "common/clock.h"
#include "gateway/metrics.h"
#include "gateway/read/connection.h"

#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#define PARAMS_MAX 4
#define TICK_MS 50

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
	struct read_connection *connection;
	int64_t timeout_ms;
	size_t waiting_max;
	size_t waiting;
	STAILQ_HEAD(, query) queries; /* the first is the one in flight, while `busy` */
	int busy;
	struct event *tick;
};

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

static void query_start(struct lookup *lookup)
{
	struct query *query = STAILQ_FIRST(&lookup->queries);
	struct postgres_argument arguments[PARAMS_MAX];

	if (!read_connection_ready(lookup->connection) || lookup->busy || !query)
		return;
	for (int i = 0; i < query->params_n; i++)
		arguments[i] = postgres_text(query->params[i]);
	lookup->busy = 1;
	metrics_add(METRIC_LOOKUPS, 1);
	read_connection_send(lookup->connection, query->sql, query->params_n, arguments,
			     query->begun_ms + lookup->timeout_ms);
}

static void on_ready(void *context)
{
	query_start(context);
}

static void on_ended(void *context, const PGresult *rows)
{
	query_end(context, rows);
	query_start(context);
}

/* All waiting look-ups fail: no request waits for an unreachable database. */
static void on_lost(void *context)
{
	queries_fail(context, INT64_MAX);
}

/* Fails the look-ups that have waited too long for the connection. */
static void on_tick(evutil_socket_t fd, short what, void *data)
{
	struct lookup *lookup = data;

	(void)fd;
	(void)what;
	if (!read_connection_ready(lookup->connection)) /* its own attempt continues */
		queries_fail(lookup, clock_monotonic_ms() - lookup->timeout_ms);
}

struct lookup *lookup_new(struct event_base *base, const char *database_url, int64_t timeout_ms,
			  size_t waiting_max)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	struct timeval tick = { .tv_usec = TICK_MS * 1000 };
	const struct read_connection_port port = {
		.context = lookup,
		.ready = on_ready,
		.ended = on_ended,
		.lost = on_lost,
	};

	check(lookup != NULL);
	lookup->timeout_ms = timeout_ms;
	lookup->waiting_max = waiting_max;
	STAILQ_INIT(&lookup->queries);
	lookup->connection = read_connection_new(base, database_url, timeout_ms, &port);
	lookup->tick = event_new(base, -1, EV_PERSIST, on_tick, lookup);
	check(lookup->tick != NULL);
	event_add(lookup->tick, &tick);
	return lookup;
}

void lookup_free(struct lookup *lookup)
{
	if (!lookup)
		return;
	event_free(lookup->tick);
	read_connection_free(lookup->connection);
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
	return read_connection_connects_n(lookup->connection);
}

const char *lookup_trouble(const struct lookup *lookup)
{
	return read_connection_ready(lookup->connection)
		       ? NULL
		       : read_connection_trouble(lookup->connection);
}
