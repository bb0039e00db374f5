#include "gateway/read/lookup.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/ticker.h"
#include "gateway/metrics.h"
#include "gateway/read/connection.h"

#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define PARAMS_MAX 4
#define PARAM_SIZE USER_ID_SIZE /* the longest; with its NUL */
#define TICK_MS 50

/* A look-up that is a statement of its own. */
struct query {
	STAILQ_ENTRY(query) next;
	const char *sql;
	char params[PARAMS_MAX][PARAM_SIZE];
	int params_n;
	lookup_fn *done;
	void *context;
	int64_t queued_ms;
};

/* The kind of the statement in flight. */
enum sent { SENT_NONE, SENT_QUERY, SENT_COUPONS };

struct lookup {
	struct read_connection *connection;
	int64_t timeout_ms;
	size_t waiting_max;
	size_t waiting; /* queries */
	STAILQ_HEAD(, query) queries;
	struct coupon_queue coupons;
	enum sent sent;
	struct query *sent_query;        /* SENT_QUERY */
	struct coupon_list sent_coupons; /* SENT_COUPONS */
	int coupons_next;                /* it is their turn */
	struct ticker *ticker;           /* while a look-up waits for its turn */
};

static void query_end(struct query *query, const PGresult *rows)
{
	if (!rows)
		metrics_add(METRIC_LOOKUPS_FAILED, 1);
	query->done(query->context, rows);
	free(query);
}

static void coupons_end(struct coupon_list *coupons, const PGresult *rows)
{
	if (!rows && !STAILQ_EMPTY(coupons))
		metrics_add(METRIC_LOOKUPS_FAILED, 1);
	coupon_list_end(coupons, rows);
}

static struct query *query_take(struct lookup *lookup)
{
	struct query *query = STAILQ_FIRST(&lookup->queries);

	STAILQ_REMOVE_HEAD(&lookup->queries, next);
	lookup->waiting--;
	return query;
}

/* Fails the look-ups that were queued before `before_ms`, not those added meanwhile. */
static void waiting_fail(struct lookup *lookup, int64_t before_ms)
{
	struct coupon_list coupons = STAILQ_HEAD_INITIALIZER(coupons);

	coupon_queue_take(&lookup->coupons, SIZE_MAX, before_ms, &coupons);
	for (size_t n = lookup->waiting;
	     n > 0 && STAILQ_FIRST(&lookup->queries)->queued_ms < before_ms; n--)
		query_end(query_take(lookup), NULL);
	coupons_end(&coupons, NULL);
}

static void sent_end(struct lookup *lookup, const PGresult *rows)
{
	struct coupon_list coupons = STAILQ_HEAD_INITIALIZER(coupons);
	struct query *query = lookup->sent_query;
	enum sent sent = lookup->sent;

	lookup->sent = SENT_NONE;
	lookup->sent_query = NULL;
	STAILQ_CONCAT(&coupons, &lookup->sent_coupons);
	if (sent == SENT_QUERY)
		query_end(query, rows);
	coupons_end(&coupons, rows);
}

static void statement_send(struct lookup *lookup, enum sent sent, const char *sql, int n,
			   const struct postgres_argument *arguments)
{
	lookup->sent = sent;
	lookup->coupons_next = sent == SENT_QUERY;
	metrics_add(METRIC_LOOKUPS, 1);
	read_connection_send(lookup->connection, sql, n, arguments,
			     clock_monotonic_ms() + lookup->timeout_ms);
}

static void query_send(struct lookup *lookup)
{
	struct query *query = lookup->sent_query = query_take(lookup);
	struct postgres_argument arguments[PARAMS_MAX];

	for (int i = 0; i < query->params_n; i++)
		arguments[i] = postgres_text(query->params[i]);
	statement_send(lookup, SENT_QUERY, query->sql, query->params_n, arguments);
}

static void coupons_send(struct lookup *lookup)
{
	struct postgres_argument argument;
	struct coupon_entry *entry;
	struct postgres_array ids;

	coupon_queue_take(&lookup->coupons, LOOKUP_COUPONS_MAX, INT64_MAX, &lookup->sent_coupons);
	postgres_array_init(&ids, POSTGRES_INT8);
	STAILQ_FOREACH (entry, &lookup->sent_coupons, next)
		postgres_array_add_number(&ids, entry->id);
	argument = postgres_array(&ids);
	statement_send(lookup, SENT_COUPONS, sql_query_coupon_state, 1, &argument);
	postgres_array_fini(&ids);
}

static void send_next(struct lookup *lookup)
{
	int queries = !STAILQ_EMPTY(&lookup->queries);
	int coupons = !coupon_queue_is_empty(&lookup->coupons);

	if (!read_connection_ready(lookup->connection) || lookup->sent != SENT_NONE)
		return;
	if (coupons && (lookup->coupons_next || !queries))
		coupons_send(lookup);
	else if (queries)
		query_send(lookup);
}

static void on_ready(void *context)
{
	send_next(context);
}

static void on_ended(void *context, const PGresult *rows)
{
	sent_end(context, rows);
	send_next(context);
}

/* All waiting look-ups fail: no request waits for an unreachable database. */
static void on_lost(void *context)
{
	sent_end(context, NULL);
	waiting_fail(context, INT64_MAX);
}

static int some_wait(const struct lookup *lookup)
{
	return lookup->waiting > 0 || !coupon_queue_is_empty(&lookup->coupons);
}

static int on_tick(void *context)
{
	struct lookup *lookup = context;

	waiting_fail(lookup, clock_monotonic_ms() - lookup->timeout_ms);
	return some_wait(lookup);
}

struct lookup *lookup_new(struct event_base *base, const char *database_url, int64_t timeout_ms,
			  size_t waiting_max)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));
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
	STAILQ_INIT(&lookup->sent_coupons);
	coupon_queue_init(&lookup->coupons, waiting_max);
	lookup->ticker = ticker_new(base, TICK_MS, on_tick, lookup);
	lookup->connection = read_connection_new(base, database_url, timeout_ms, &port);
	return lookup;
}

void lookup_free(struct lookup *lookup)
{
	if (!lookup)
		return;
	read_connection_free(lookup->connection);
	ticker_free(lookup->ticker);
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
	query->queued_ms = clock_monotonic_ms();
	return query;
}

static void query_param_id(struct query *query, int64_t id)
{
	id_format(id, query->params[query->params_n++]);
}

_Static_assert(PARAM_SIZE >= ULID_UUID_SIZE && PARAM_SIZE >= ID_SIZE, "each parameter must fit");

static void query_param_user(struct query *query, const struct user_id *user)
{
	memcpy(query->params[query->params_n++], user->text, user->len + 1);
}

static void added(struct lookup *lookup)
{
	send_next(lookup);
	if (some_wait(lookup))
		ticker_start(lookup->ticker);
}

static void query_add(struct lookup *lookup, struct query *query)
{
	lookup->waiting++;
	STAILQ_INSERT_TAIL(&lookup->queries, query, next);
	added(lookup);
}

int lookup_coupon(struct lookup *lookup, int64_t coupon, lookup_coupon_fn *done, void *context)
{
	if (coupon_queue_add(&lookup->coupons, coupon, clock_monotonic_ms(), done, context))
		return -1;
	added(lookup);
	return 0;
}

int lookup_receive(struct lookup *lookup, const struct receive *receive, lookup_fn *done,
		   void *context)
{
	struct query *query = query_new(lookup, sql_query_receive_outcome, done, context);

	if (!query)
		return -1;
	query_param_id(query, receive->coupon);
	query_param_user(query, &receive->user);
	ulid_to_uuid(&receive->batch, query->params[query->params_n++]);
	snprintf(query->params[query->params_n++], sizeof(query->params[0]), "%d", receive->index);
	query_add(lookup, query);
	return 0;
}

int lookup_user(struct lookup *lookup, int64_t coupon, const struct user_id *user, lookup_fn *done,
		void *context)
{
	struct query *query = query_new(lookup, sql_query_user_outcomes, done, context);

	if (!query)
		return -1;
	query_param_id(query, coupon);
	query_param_user(query, user);
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

int lookup_changes(struct lookup *lookup, lookup_fn *done, void *context)
{
	struct query *query = query_new(lookup, sql_query_change_counts, done, context);

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
