#include "gateway/read/lookup.h"

#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/serve/loop.h"
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
		.session = "SET enable_seqscan = off;"
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
	[LOOKUP_CODES] = {
		.application_name = "coupon-gateway codes",
		.ready_event = "codes_ready",
		.lost_event = "codes_lost",
		.refused_event = "code_lookup_failed",
		.up = METRIC_CODE_CONNECTIONS,
		.sent = METRIC_LOOKUPS,
		.failed = METRIC_LOOKUPS_FAILED,
		.refused = METRIC_LOOKUPS_REFUSED,
	},
};

/* What waits in a lane: queries, or coupons. */
struct lane {
	size_t waiting; /* queries */
	struct query_list queries;
	struct coupon_queue coupons;
};

/* One connection, and the statement in flight on it: a query, or else coupons. */
struct session {
	struct lookup *lookup;
	struct read_connection *connection;
	int is_busy;
	int is_own;       /* the statement is of LOOKUP_OWN */
	uint64_t trust_n; /* when it was sent */
	struct query *query;
	struct coupon_list coupons;
};

struct lookup {
	const struct use *use;
	int64_t timeout_ms;
	size_t waiting_max;
	struct lane lanes[LOOKUP_LANES_N];
	size_t turn; /* the lane that was served last */
	enum lookup_trust trust;
	uint64_t trust_n; /* how many times it has changed */
	int is_replica;
	int closing;
	struct ticker *ticker; /* while a look-up waits for its turn */
	size_t sessions_n;
	struct session sessions[];
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

static struct query *query_take(struct lane *lane)
{
	struct query *query = STAILQ_FIRST(&lane->queries);

	STAILQ_REMOVE_HEAD(&lane->queries, next);
	lane->waiting--;
	return query;
}

/* Fails the look-ups that were queued before `before_ms`, not those added meanwhile. */
static void lane_fail(struct lookup *lookup, struct lane *lane, int64_t before_ms)
{
	struct coupon_list coupons = STAILQ_HEAD_INITIALIZER(coupons);

	coupon_queue_take(&lane->coupons, SIZE_MAX, before_ms, &coupons);
	for (size_t n = lane->waiting; n > 0 && STAILQ_FIRST(&lane->queries)->queued_ms < before_ms;
	     n--)
		query_end(lookup, query_take(lane), NULL);
	coupons_end(lookup, &coupons, NULL);
}

static void waiting_fail(struct lookup *lookup, size_t first, int64_t before_ms)
{
	for (size_t i = first; i < LOOKUP_LANES_N; i++)
		lane_fail(lookup, &lookup->lanes[i], before_ms);
}

/* Whether the statement in flight was sent to the PostgreSQL that is trusted now. */
static int is_trusted(const struct session *session)
{
	const struct lookup *lookup = session->lookup;

	return session->is_own ||
	       (lookup->trust == LOOKUP_TRUSTED && session->trust_n == lookup->trust_n);
}

static void sent_end(struct session *session, const PGresult *rows)
{
	struct coupon_list coupons = STAILQ_HEAD_INITIALIZER(coupons);
	struct query *query = session->query;

	if (!is_trusted(session))
		rows = NULL;
	session->is_busy = 0;
	session->query = NULL;
	STAILQ_CONCAT(&coupons, &session->coupons);
	if (query)
		query_end(session->lookup, query, rows);
	coupons_end(session->lookup, &coupons, rows);
}

static void statement_send(struct session *session, const char *sql, int n,
			   const struct postgres_argument *arguments)
{
	struct lookup *lookup = session->lookup;

	session->is_busy = 1;
	session->trust_n = lookup->trust_n;
	metrics_add(lookup->use->sent, session->query && session->query->is_routine ? 0 : 1);
	read_connection_send(session->connection, sql, n, arguments,
			     clock_monotonic_ms() + lookup->timeout_ms);
}

static void query_send(struct session *session, struct lane *lane)
{
	struct query *query = session->query = query_take(lane);
	struct postgres_argument arguments[QUERY_PARAMS_MAX];

	query_arguments(query, arguments);
	statement_send(session, query->sql, query->params_n, arguments);
}

static void coupons_send(struct session *session, struct lane *lane)
{
	struct postgres_argument argument;
	struct coupon_entry *entry;
	struct postgres_array ids;

	coupon_queue_take(&lane->coupons, LOOKUP_COUPONS_MAX, INT64_MAX, &session->coupons);
	postgres_array_init(&ids, POSTGRES_INT8);
	STAILQ_FOREACH (entry, &session->coupons, next)
		postgres_array_add_number(&ids, entry->id);
	argument = postgres_array(&ids);
	statement_send(session, sql_query_coupon_state, 1, &argument);
	postgres_array_fini(&ids);
}

static int session_ready(const struct session *session)
{
	return session->connection && read_connection_ready(session->connection);
}

static size_t sessions_ready(const struct lookup *lookup)
{
	size_t n = 0;

	for (size_t i = 0; i < lookup->sessions_n; i++)
		n += session_ready(&lookup->sessions[i]) ? 1 : 0;
	return n;
}

static size_t lane_waiting(const struct lane *lane)
{
	return lane->waiting + HASH_COUNT(lane->coupons.by_id);
}

size_t lookup_waiting(const struct lookup *lookup)
{
	size_t n = 0;

	for (size_t i = 0; i < LOOKUP_LANES_N; i++)
		n += lane_waiting(&lookup->lanes[i]);
	return n;
}

/* The next lane in turn in which something waits that may be sent, or NULL. */
static struct lane *lane_next(struct lookup *lookup)
{
	for (size_t i = 1; i <= LOOKUP_LANES_N; i++) {
		size_t turn = (lookup->turn + i) % LOOKUP_LANES_N;

		if (lane_waiting(&lookup->lanes[turn]) == 0 ||
		    (turn != LOOKUP_OWN && lookup->trust != LOOKUP_TRUSTED))
			continue;
		lookup->turn = turn;
		return &lookup->lanes[turn];
	}
	return NULL;
}

static void session_send(struct session *session)
{
	struct lane *lane;

	if (!session_ready(session) || session->is_busy || !(lane = lane_next(session->lookup)))
		return;
	session->is_own = lane == &session->lookup->lanes[LOOKUP_OWN];
	if (lane->waiting > 0)
		query_send(session, lane);
	else
		coupons_send(session, lane);
}

static void waiting_send(struct lookup *lookup)
{
	for (size_t i = 0; i < lookup->sessions_n && lookup_waiting(lookup) > 0; i++)
		session_send(&lookup->sessions[i]);
}

static int is_refused(const struct lookup *lookup)
{
	return lookup->trust == LOOKUP_PUT_BACK || lookup->trust == LOOKUP_FOREIGN;
}

void lookup_trust(struct lookup *lookup, enum lookup_trust trust)
{
	if (lookup->trust == trust)
		return;
	lookup->trust = trust;
	lookup->trust_n++;
	if (is_refused(lookup))
		waiting_fail(lookup, LOOKUP_OWN + 1, INT64_MAX);
	waiting_send(lookup);
}

static void on_ready(void *context)
{
	struct session *session = context;

	metrics_set(session->lookup->use->up, (int64_t)sessions_ready(session->lookup));
	if (!session->lookup->is_replica)
		lookup_trust(session->lookup, LOOKUP_NOT_COMPARED);
	session_send(session);
}

static void on_ended(void *context, const PGresult *rows)
{
	sent_end(context, rows);
	session_send(context);
}

/* With the last connection all waiting look-ups fail: none waits for an unreachable database. */
static void on_lost(void *context)
{
	struct session *session = context;
	struct lookup *lookup = session->lookup;
	size_t ready = sessions_ready(lookup);

	metrics_set(lookup->use->up, (int64_t)ready);
	sent_end(session, NULL);
	if (ready == 0 || lookup->closing)
		waiting_fail(lookup, 0, INT64_MAX);
}

static int on_tick(void *context)
{
	struct lookup *lookup = context;

	waiting_fail(lookup, 0, clock_monotonic_ms() - lookup->timeout_ms);
	if (is_refused(lookup))
		waiting_fail(lookup, LOOKUP_OWN + 1, INT64_MAX);
	return lookup_waiting(lookup) > 0;
}

static void session_open(struct lookup *lookup, struct session *session, struct event_base *base,
			 const struct lookup_options *options)
{
	const struct use *use = lookup->use;

	session->lookup = lookup;
	STAILQ_INIT(&session->coupons);
	session->connection = read_connection_new(base,
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
							  .context = session,
							  .ready = on_ready,
							  .ended = on_ended,
							  .lost = on_lost,
						  });
}

struct lookup *lookup_new(struct event_base *base, const struct lookup_options *options)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup) + options->connections *
								    sizeof(lookup->sessions[0]));

	check(lookup != NULL);
	lookup->use = &uses[options->use];
	lookup->timeout_ms = options->timeout_ms;
	lookup->waiting_max = options->waiting_max;
	lookup->is_replica = options->is_replica;
	lookup->trust = options->is_replica ? LOOKUP_TRUSTED : LOOKUP_NOT_COMPARED;
	lookup->sessions_n = options->connections;
	for (size_t i = 0; i < LOOKUP_LANES_N; i++) {
		STAILQ_INIT(&lookup->lanes[i].queries);
		coupon_queue_init(&lookup->lanes[i].coupons, options->waiting_max);
	}
	lookup->ticker = ticker_new(base, TICK_MS, on_tick, lookup);
	for (size_t i = 0; i < lookup->sessions_n; i++)
		session_open(lookup, &lookup->sessions[i], base, options);
	return lookup;
}

void lookup_free(struct lookup *lookup)
{
	if (!lookup)
		return;
	lookup->closing = 1;
	for (size_t i = 0; i < lookup->sessions_n; i++) {
		read_connection_free(lookup->sessions[i].connection);
		lookup->sessions[i].connection = NULL;
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
	waiting_send(lookup);
	if (lookup_waiting(lookup) > 0)
		ticker_start(lookup->ticker);
}

int lookup_coupon(struct lookup *lookup, enum lookup_lane lane, int64_t coupon,
		  lookup_coupon_fn *done, void *context)
{
	check(lane >= LOOKUP_COUPONS);
	if (coupon_queue_add(&lookup->lanes[lane].coupons, coupon, clock_monotonic_ms(), done,
			     context))
		return refuse(lookup);
	added(lookup);
	return 0;
}

/* Takes the query. */
static int query_add(struct lookup *lookup, enum lookup_lane to, struct query *query)
{
	struct lane *lane = &lookup->lanes[to];

	if (lane->waiting >= lookup->waiting_max) {
		query_free(query);
		return refuse(lookup);
	}
	lane->waiting++;
	STAILQ_INSERT_TAIL(&lane->queries, query, next);
	added(lookup);
	return 0;
}

int lookup_receive(struct lookup *lookup, enum lookup_lane lane, const struct receive *receive,
		   lookup_fn *done, void *context)
{
	check(lane == LOOKUP_STATUS || lane == LOOKUP_ISSUED);
	return query_add(lookup, lane, query_receive(receive, done, context));
}

int lookup_user(struct lookup *lookup, int64_t coupon, const struct user_id *user, lookup_fn *done,
		void *context)
{
	return query_add(lookup, LOOKUP_STATUS, query_user(coupon, user, done, context));
}

int lookup_user_coupons(struct lookup *lookup, const struct user_id *user,
			const struct coupon_cursor *after, int rows_max, lookup_fn *done,
			void *context)
{
	return query_add(lookup, LOOKUP_PAGES,
			 query_user_coupons(user, after, rows_max, done, context));
}

int lookup_offer(struct lookup *lookup, int64_t coupon, lookup_fn *done, void *context)
{
	return query_add(lookup, LOOKUP_OFFERS, query_offer(coupon, done, context));
}

int lookup_settings(struct lookup *lookup, lookup_fn *done, void *context)
{
	return query_add(lookup, LOOKUP_OWN, query_settings(done, context));
}

int lookup_changes(struct lookup *lookup, lookup_fn *done, void *context)
{
	return query_add(lookup, LOOKUP_OWN, query_changes(done, context));
}

int lookup_alive(struct lookup *lookup, const char *id, const char *place, int is_new,
		 lookup_fn *done, void *context)
{
	return query_add(lookup, LOOKUP_OWN, query_alive(id, place, is_new, done, context));
}

int lookup_gone(struct lookup *lookup, const char *id, lookup_fn *done, void *context)
{
	return query_add(lookup, LOOKUP_OWN, query_gone(id, done, context));
}

int lookup_code_state(struct lookup *lookup, lookup_fn *done, void *context)
{
	return query_add(lookup, LOOKUP_CATALOGUE, query_code_state(done, context));
}

int lookup_code_catalogue(struct lookup *lookup, lookup_fn *done, void *context)
{
	return query_add(lookup, LOOKUP_CATALOGUE, query_code_catalogue(done, context));
}

int lookup_code_texts(struct lookup *lookup, const char *const *texts, size_t n, lookup_fn *done,
		      void *context)
{
	return query_add(lookup, LOOKUP_CODE_TEXTS, query_code_texts(texts, n, done, context));
}

uint64_t lookup_connects_n(const struct lookup *lookup)
{
	uint64_t n = 0;

	for (size_t i = 0; i < lookup->sessions_n; i++)
		n += read_connection_connects_n(lookup->sessions[i].connection);
	return n;
}

int lookup_is_connected(const struct lookup *lookup)
{
	return sessions_ready(lookup) > 0;
}

const char *lookup_trouble(const struct lookup *lookup)
{
	if (!lookup_is_connected(lookup))
		return read_connection_trouble(lookup->sessions[0].connection);
	switch (lookup->trust) {
	case LOOKUP_NOT_COMPARED:
		return "not yet compared with its copy in Redis";
	case LOOKUP_PUT_BACK:
		return "put back to an earlier moment; run couponctl recover";
	case LOOKUP_FOREIGN:
		return RELATION_FOREIGN_TEXT "; see couponctl installation";
	case LOOKUP_TRUSTED:
		break;
	}
	return NULL;
}
