#include "gateway/read/lookup.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/ticker.h"
#include "gateway/metrics.h"
#include "gateway/read/connection.h"
#include "gateway/read/query.h"

#include "embed.h"

#include <stdlib.h>

#define TICK_MS 50

/* How each use is seen from outside. */
static const struct use {
	const char *application_name;
	const char *session;
	const char *prepared;
	const char *ready_event, *lost_event, *refused_event;
	enum metric up, sent, failed, refused;
} uses[] = {
	[LOOKUP_DECIDING] = {
		.application_name = "coupon-gateway",
		.ready_event = "database_ready",
		.lost_event = "database_lost",
		.refused_event = "lookup_failed",
		.up = METRIC_DATABASE_UP,
		.sent = METRIC_LOOKUPS,
		.failed = METRIC_LOOKUPS_FAILED,
		.refused = METRIC_LOOKUPS_REFUSED,
	},
	[LOOKUP_SHOWING] = {
		.application_name = "coupon-gateway reads",
		/* The plan is the same whatever the statistics are. "off" adds a huge cost. */
		.session = "SET enable_seqscan = off; SET jit = off;"
			   " SET max_parallel_workers_per_gather = 0;"
			   " SET plan_cache_mode = force_generic_plan;"
			   " SET default_transaction_read_only = on; SET client_encoding = 'UTF8'",
		.prepared = sql_query_user_coupon_page,
		.ready_event = "reads_ready",
		.lost_event = "reads_lost",
		.refused_event = "read_failed",
		.up = METRIC_READ_CONNECTIONS,
		.sent = METRIC_READS,
		.failed = METRIC_READS_FAILED,
		.refused = METRIC_READS_REFUSED,
	},
};

/* The kind of the statement in flight. */
enum sent { SENT_NONE, SENT_QUERY, SENT_COUPONS };

/* One connection, and the statement in flight on it. */
struct lane {
	struct lookup *lookup;
	struct read_connection *connection;
	enum sent sent;
	struct query *query;        /* SENT_QUERY */
	struct coupon_list coupons; /* SENT_COUPONS */
};

struct lookup {
	const struct use *use;
	int64_t timeout_ms;
	size_t waiting_max;
	size_t waiting; /* queries */
	struct query_list queries;
	struct coupon_queue coupons;
	int coupons_next; /* it is their turn */
	int closing;
	struct ticker *ticker; /* while a look-up waits for its turn */
	size_t lanes_n;
	struct lane lanes[];
};

static void query_end(const struct lookup *lookup, struct query *query, const PGresult *rows)
{
	if (!rows)
		metrics_add(lookup->use->failed, 1);
	query->done(query->context, rows);
	query_free(query);
}

static void coupons_end(const struct lookup *lookup, struct coupon_list *coupons,
			const PGresult *rows)
{
	if (!rows && !STAILQ_EMPTY(coupons))
		metrics_add(lookup->use->failed, 1);
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
		query_end(lookup, query_take(lookup), NULL);
	coupons_end(lookup, &coupons, NULL);
}

static void sent_end(struct lane *lane, const PGresult *rows)
{
	struct coupon_list coupons = STAILQ_HEAD_INITIALIZER(coupons);
	struct query *query = lane->query;
	enum sent sent = lane->sent;

	lane->sent = SENT_NONE;
	lane->query = NULL;
	STAILQ_CONCAT(&coupons, &lane->coupons);
	if (sent == SENT_QUERY)
		query_end(lane->lookup, query, rows);
	coupons_end(lane->lookup, &coupons, rows);
}

static void statement_send(struct lane *lane, enum sent sent, const char *sql, int n,
			   const struct postgres_argument *arguments)
{
	struct lookup *lookup = lane->lookup;

	lane->sent = sent;
	lookup->coupons_next = sent == SENT_QUERY;
	metrics_add(lookup->use->sent, sent == SENT_QUERY && lane->query->is_routine ? 0 : 1);
	read_connection_send(lane->connection, sql, n, arguments,
			     clock_monotonic_ms() + lookup->timeout_ms);
}

static void query_send(struct lane *lane)
{
	struct query *query = lane->query = query_take(lane->lookup);
	struct postgres_argument arguments[QUERY_PARAMS_MAX];

	query_arguments(query, arguments);
	statement_send(lane, SENT_QUERY, query->sql, query->params_n, arguments);
}

static void coupons_send(struct lane *lane)
{
	struct postgres_argument argument;
	struct coupon_entry *entry;
	struct postgres_array ids;

	coupon_queue_take(&lane->lookup->coupons, LOOKUP_COUPONS_MAX, INT64_MAX, &lane->coupons);
	postgres_array_init(&ids, POSTGRES_INT8);
	STAILQ_FOREACH (entry, &lane->coupons, next)
		postgres_array_add_number(&ids, entry->id);
	argument = postgres_array(&ids);
	statement_send(lane, SENT_COUPONS, sql_query_coupon_state, 1, &argument);
	postgres_array_fini(&ids);
}

static int lane_ready(const struct lane *lane)
{
	return lane->connection && read_connection_ready(lane->connection);
}

static size_t lanes_ready(const struct lookup *lookup)
{
	size_t n = 0;

	for (size_t i = 0; i < lookup->lanes_n; i++)
		n += lane_ready(&lookup->lanes[i]) ? 1 : 0;
	return n;
}

static void lane_send(struct lane *lane)
{
	struct lookup *lookup = lane->lookup;
	int queries = !STAILQ_EMPTY(&lookup->queries);
	int coupons = !coupon_queue_is_empty(&lookup->coupons);

	if (!lane_ready(lane) || lane->sent != SENT_NONE)
		return;
	if (coupons && (lookup->coupons_next || !queries))
		coupons_send(lane);
	else if (queries)
		query_send(lane);
}

static void on_ready(void *context)
{
	struct lane *lane = context;

	metrics_set(lane->lookup->use->up, (int64_t)lanes_ready(lane->lookup));
	lane_send(lane);
}

static void on_ended(void *context, const PGresult *rows)
{
	sent_end(context, rows);
	lane_send(context);
}

/* With the last connection all waiting look-ups fail: none waits for an unreachable database. */
static void on_lost(void *context)
{
	struct lane *lane = context;
	struct lookup *lookup = lane->lookup;
	size_t ready = lanes_ready(lookup);

	metrics_set(lookup->use->up, (int64_t)ready);
	sent_end(lane, NULL);
	if (ready == 0 || lookup->closing)
		waiting_fail(lookup, INT64_MAX);
}

size_t lookup_waiting(const struct lookup *lookup)
{
	return lookup->waiting + HASH_COUNT(lookup->coupons.by_id);
}

static int on_tick(void *context)
{
	struct lookup *lookup = context;

	waiting_fail(lookup, clock_monotonic_ms() - lookup->timeout_ms);
	return lookup_waiting(lookup) > 0;
}

static void lane_open(struct lookup *lookup, struct lane *lane, struct event_base *base,
		      const struct lookup_options *options)
{
	const struct use *use = lookup->use;

	lane->lookup = lookup;
	STAILQ_INIT(&lane->coupons);
	lane->connection = read_connection_new(base,
					       &(struct read_connection_options){
						       .database_url = options->database_url,
						       .timeout_ms = options->timeout_ms,
						       .application_name = use->application_name,
						       .session = use->session,
						       .prepared = use->prepared,
						       .ready_event = use->ready_event,
						       .lost_event = use->lost_event,
						       .refused_event = use->refused_event,
					       },
					       &(struct read_connection_port){
						       .context = lane,
						       .ready = on_ready,
						       .ended = on_ended,
						       .lost = on_lost,
					       });
}

struct lookup *lookup_new(struct event_base *base, const struct lookup_options *options)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup) +
						  options->connections * sizeof(lookup->lanes[0]));

	check(lookup != NULL);
	lookup->use = &uses[options->use];
	lookup->timeout_ms = options->timeout_ms;
	lookup->waiting_max = options->waiting_max;
	lookup->lanes_n = options->connections;
	STAILQ_INIT(&lookup->queries);
	coupon_queue_init(&lookup->coupons, options->waiting_max);
	lookup->ticker = ticker_new(base, TICK_MS, on_tick, lookup);
	for (size_t i = 0; i < lookup->lanes_n; i++)
		lane_open(lookup, &lookup->lanes[i], base, options);
	return lookup;
}

void lookup_free(struct lookup *lookup)
{
	if (!lookup)
		return;
	lookup->closing = 1;
	for (size_t i = 0; i < lookup->lanes_n; i++) {
		read_connection_free(lookup->lanes[i].connection);
		lookup->lanes[i].connection = NULL;
	}
	ticker_free(lookup->ticker);
	free(lookup);
}

static int refuse(const struct lookup *lookup)
{
	metrics_add(lookup->use->refused, 1);
	return -1;
}

static void added(struct lookup *lookup)
{
	for (size_t i = 0; i < lookup->lanes_n && lookup_waiting(lookup) > 0; i++)
		lane_send(&lookup->lanes[i]);
	if (lookup_waiting(lookup) > 0)
		ticker_start(lookup->ticker);
}

int lookup_coupon(struct lookup *lookup, int64_t coupon, lookup_coupon_fn *done, void *context)
{
	if (coupon_queue_add(&lookup->coupons, coupon, clock_monotonic_ms(), done, context))
		return refuse(lookup);
	added(lookup);
	return 0;
}

/* Takes the query. */
static int query_add(struct lookup *lookup, struct query *query)
{
	if (lookup->waiting >= lookup->waiting_max) {
		query_free(query);
		return refuse(lookup);
	}
	lookup->waiting++;
	STAILQ_INSERT_TAIL(&lookup->queries, query, next);
	added(lookup);
	return 0;
}

int lookup_receive(struct lookup *lookup, const struct receive *receive, lookup_fn *done,
		   void *context)
{
	return query_add(lookup, query_receive(receive, done, context));
}

int lookup_user(struct lookup *lookup, int64_t coupon, const struct user_id *user, lookup_fn *done,
		void *context)
{
	return query_add(lookup, query_user(coupon, user, done, context));
}

int lookup_user_coupons(struct lookup *lookup, const struct user_id *user,
			const struct coupon_cursor *after, int rows_max, lookup_fn *done,
			void *context)
{
	return query_add(lookup, query_user_coupons(user, after, rows_max, done, context));
}

int lookup_offer(struct lookup *lookup, int64_t coupon, lookup_fn *done, void *context)
{
	return query_add(lookup, query_offer(coupon, done, context));
}

int lookup_settings(struct lookup *lookup, lookup_fn *done, void *context)
{
	return query_add(lookup, query_settings(done, context));
}

int lookup_changes(struct lookup *lookup, int is_routine, lookup_fn *done, void *context)
{
	return query_add(lookup, query_changes(is_routine, done, context));
}

int lookup_code_state(struct lookup *lookup, lookup_fn *done, void *context)
{
	return query_add(lookup, query_code_state(done, context));
}

int lookup_code_catalogue(struct lookup *lookup, lookup_fn *done, void *context)
{
	return query_add(lookup, query_code_catalogue(done, context));
}

int lookup_code_texts(struct lookup *lookup, const char *const *texts, size_t n, lookup_fn *done,
		      void *context)
{
	return query_add(lookup, query_code_texts(texts, n, done, context));
}

uint64_t lookup_connects_n(const struct lookup *lookup)
{
	uint64_t n = 0;

	for (size_t i = 0; i < lookup->lanes_n; i++)
		n += read_connection_connects_n(lookup->lanes[i].connection);
	return n;
}

const char *lookup_trouble(const struct lookup *lookup)
{
	return lanes_ready(lookup) > 0 ? NULL
				       : read_connection_trouble(lookup->lanes[0].connection);
}
