#include "gateway/read/lookup.h"

#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/program/program.h"
#include "common/program/weak_settings.h"
#include "common/serve/loop.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 50

/* How each use is seen from outside. */
static const struct lookup_profile {
	const char *application_name;
	const char *session;
	const char *prepared;
	const char *ready_event, *lost_event, *refused_event;
	enum metric up, sent, failed, refused;
} profiles[] = {
	[LOOKUP_DECIDING] = {
		.application_name = "coupon-gateway " PROGRAM_VERSION,
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
			   " SET default_transaction_read_only = on",
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

enum lane_id {
	LANE_OWN, /* what is asked about PostgreSQL itself: compared or not */
	LANE_CATALOGUE,
	LANE_ON_OFFER,
	LANE_CODE_TEXTS,
	LANE_PAGES,
	LANE_DISCOUNTS,
	LANE_QUOTES,
	LANE_ISSUED, /* many in one statement from here on: receives, */
	LANE_STATUS,
	LANE_STATUS_USERS,
	LANE_COUPONS, /* and coupons */
	LANE_STATUS_COUPONS,
	LANES_N
};

static const struct lane_query {
	enum lane_id lane;
	const char *sql;
	int is_routine; /* sent all the time, whatever is asked for: not counted */
} queries[LOOKUP_QUERIES] = {
	[LOOKUP_SETTINGS] = { LANE_OWN, sql_query_durability, 0 },
	[LOOKUP_CHANGES] = { LANE_OWN, sql_query_change_counts, 1 },
	[LOOKUP_ALIVE] = { LANE_OWN, sql_query_gateway_alive, 1 },
	[LOOKUP_GONE] = { LANE_OWN, sql_query_gateway_gone, 1 },
	[LOOKUP_KEYS] = { LANE_OWN, sql_query_key_news, 1 },
	[LOOKUP_LISTEN] = { LANE_OWN, "LISTEN couponmq_keys; LISTEN couponmq_terms", 1 },
	[LOOKUP_CODE_STATE] = { LANE_CATALOGUE, sql_query_code_state, 1 },
	[LOOKUP_CODE_CATALOGUE] = { LANE_CATALOGUE, sql_query_code_catalogue, 1 },
	[LOOKUP_OFFER_PAGE] = { LANE_ON_OFFER, sql_query_offer_page, 1 },
	[LOOKUP_OFFER_ROWS] = { LANE_ON_OFFER, sql_query_offer_rows, 1 },
	[LOOKUP_ISSUED] = { LANE_ISSUED, sql_query_receive_committed, 0 },
	[LOOKUP_RECEIVE] = { LANE_STATUS, sql_query_receive_outcome, 0 },
	[LOOKUP_USER] = { LANE_STATUS_USERS, sql_query_user_outcomes, 0 },
	[LOOKUP_CODE_TEXTS] = { LANE_CODE_TEXTS, sql_query_code_claimable, 0 },
	[LOOKUP_PAGE] = { LANE_PAGES, sql_query_user_coupon_page, 0 },
	[LOOKUP_DISCOUNT] = { LANE_DISCOUNTS, sql_query_coupon_discount, 0 },
	[LOOKUP_QUOTE] = { LANE_QUOTES, sql_query_quote, 0 },
	[LOOKUP_QUOTE_USER] = { LANE_QUOTES, sql_query_quote_user, 0 },
	[LOOKUP_COUPON] = { LANE_COUPONS, sql_query_coupon_state, 0 },
	[LOOKUP_STATUS_COUPON] = { LANE_STATUS_COUPONS, sql_query_coupon_state, 0 },
};

struct lane_asker {
	STAILQ_ENTRY(lane_asker) next;
	lookup_fn *done; /* a query's or a coupon's */
	lookup_receive_fn *done_receive;
	void *context;
};

void lane_init(struct lane *lane, size_t max)
{
	*lane = (struct lane){ .max = max };
	STAILQ_INIT(&lane->entries);
}

static void entry_free(struct lane_entry *entry)
{
	for (int i = 0; i < entry->n; i++)
		free((char *)entry->arguments[i].text);
	postgres_array_fini(&entry->array);
	free(entry);
}

static struct lane_entry *entry_new(const struct lane_query *query, int64_t coupon, int n,
				    const struct postgres_argument *arguments)
{
	struct lane_entry *entry = checked(calloc(1, sizeof(*entry)));

	check(n <= LANE_ARGUMENTS_MAX);
	entry->query = query;
	entry->queued_ms = clock_monotonic_ms();
	entry->coupon = coupon;
	entry->n = n;
	for (int i = 0; i < n; i++) {
		entry->arguments[i] = arguments[i];
		if (arguments[i].kind == POSTGRES_OF_TEXT && arguments[i].text)
			entry->arguments[i] = postgres_text(checked(strdup(arguments[i].text)));
		if (arguments[i].kind == POSTGRES_OF_ARRAY) {
			entry->array = *arguments[i].array;
			entry->arguments[i] = postgres_array(&entry->array);
		}
	}
	STAILQ_INIT(&entry->askers);
	return entry;
}

static void asker_add(struct lane_entry *entry, const struct lane_asker *asker)
{
	struct lane_asker *copy = checked(malloc(sizeof(*copy)));

	*copy = *asker;
	STAILQ_INSERT_TAIL(&entry->askers, copy, next);
}

int lane_add(struct lane *lane, const struct lane_query *query, int64_t coupon, int n,
	     const struct postgres_argument *arguments, lookup_fn *done, void *context)
{
	struct lane_entry *entry = NULL;

	if (coupon)
		HASH_FIND(hh, lane->by_coupon, &coupon, sizeof(coupon), entry);
	if (!entry) {
		entry = entry_new(query, coupon, n, arguments);
		if (lane->n >= lane->max) {
			entry_free(entry);
			return -1;
		}
		STAILQ_INSERT_TAIL(&lane->entries, entry, next);
		lane->n++;
		if (coupon)
			HASH_ADD(hh, lane->by_coupon, coupon, sizeof(entry->coupon), entry);
	}
	asker_add(entry, &(struct lane_asker){ .done = done, .context = context });
	return 0;
}

size_t lane_take(struct lane *lane, size_t n, int64_t before_ms, struct lane_list *to)
{
	struct lane_entry *entry;
	size_t taken = 0;

	while (taken < n && (entry = STAILQ_FIRST(&lane->entries)) &&
	       entry->queued_ms < before_ms) {
		STAILQ_REMOVE_HEAD(&lane->entries, next);
		if (entry->coupon)
			HASH_DELETE(hh, lane->by_coupon, entry);
		STAILQ_INSERT_TAIL(to, entry, next);
		lane->n--;
		taken++;
	}
	return taken;
}

void lane_list_end(struct lane_list *list, const PGresult *rows)
{
	struct lane_entry *entry;
	struct lane_asker *asker;
	int row = 0;

	for (int ord = 1; (entry = STAILQ_FIRST(list)); ord++) {
		int n = 0; /* rows of the receive with this number, from `row` on */

		while (entry->receive.coupon && rows && row + n < PQntuples(rows) &&
		       column_number(rows, row + n, "ord") == ord)
			n++;
		STAILQ_REMOVE_HEAD(list, next);
		while ((asker = STAILQ_FIRST(&entry->askers))) {
			STAILQ_REMOVE_HEAD(&entry->askers, next);
			if (asker->done_receive)
				asker->done_receive(asker->context, rows, row, n);
			else
				asker->done(asker->context, rows);
			free(asker);
		}
		row += n;
		entry_free(entry);
	}
}

/* One session of PostgreSQL, and what its statement in flight is for: a query, or many. */
struct lookup_session {
	struct lookup *lookup;
	struct postgres *postgres;
	struct event *socket; /* for what it waits for now; NULL: down */
	int was_up;
	uint64_t trust_n; /* when it was sent */
	struct lane_list sent;
};

#define REFUSED_SIZE 256

struct lookup {
	const struct lookup_profile *profile;
	struct event_base *base;
	int64_t timeout_ms;
	struct lane lanes[LANES_N];
	size_t turn; /* the lane that was served last */
	enum lookup_trust trust;
	uint64_t trust_n;           /* how many times it has changed */
	char refused[REFUSED_SIZE]; /* why the last statement failed, while it is not compared */
	int is_replica;
	void (*keys_notified)(void *context);
	void *keys_context;
	void (*terms_changed)(void *context, int64_t coupon);
	void *terms_context;
	struct ticker *ticker; /* while a look-up waits, or a session is not idle */
	size_t sessions_n;
	struct lookup_session sessions[];
};

/*
 * Fails the look-ups that were queued before `before_ms`, not those added meanwhile. Those that go
 * in one statement count once.
 */
static void waiting_fail(struct lookup *lookup, size_t first, int64_t before_ms)
{
	for (size_t i = first; i < LANES_N; i++) {
		struct lane_list list = STAILQ_HEAD_INITIALIZER(list);
		size_t n = lane_take(&lookup->lanes[i], SIZE_MAX, before_ms, &list);

		metrics_add(lookup->profile->failed, i < LANE_ISSUED ? (int64_t)n : n > 0);
		lane_list_end(&list, NULL);
	}
}

static void on_socket(evutil_socket_t fd, short what, void *data);

static void socket_forget(struct lookup_session *session)
{
	if (session->socket)
		event_free(session->socket);
	session->socket = NULL;
}

static void sent_end(struct lookup_session *session, const PGresult *rows)
{
	struct lane_list list = STAILQ_HEAD_INITIALIZER(list);
	const struct lookup *lookup = session->lookup;
	const struct lane_entry *first = STAILQ_FIRST(&session->sent);

	if (!first)
		return;
	/* The answer counts only if the question went to the PostgreSQL that is trusted now. */
	if (first->query->lane != LANE_OWN &&
	    (lookup->trust != LOOKUP_TRUSTED || session->trust_n != lookup->trust_n))
		rows = NULL;
	STAILQ_CONCAT(&list, &session->sent);
	if (!rows)
		metrics_add(lookup->profile->failed, 1);
	lane_list_end(&list, rows);
}

/*
 * Made anew each time while it connects, because libpq may open another socket under the same
 * number then.
 */
static void socket_watch(struct lookup_session *session)
{
	int fd = postgres_fd(session->postgres);
	short events = postgres_poll_events(session->postgres), what = EV_PERSIST;

	if (events & POLLIN)
		what |= EV_READ;
	if (events & POLLOUT)
		what |= EV_WRITE;
	if (session->socket && postgres_up(session->postgres) &&
	    event_get_events(session->socket) == what)
		return;
	socket_forget(session);
	if (fd < 0)
		return;
	session->socket = checked(event_new(session->lookup->base, fd, what, on_socket, session));
	event_add(session->socket, NULL);
}

static size_t sessions_ready(const struct lookup *lookup)
{
	size_t n = 0;

	for (size_t i = 0; i < lookup->sessions_n; i++)
		n += postgres_up(lookup->sessions[i].postgres) ? 1 : 0;
	return n;
}

size_t lookup_waiting(const struct lookup *lookup)
{
	size_t n = 0;

	for (size_t i = 0; i < LANES_N; i++)
		n += lookup->lanes[i].n;
	return n;
}

/* Sends what waits in the next lane that may be served, if the session is idle. */
static void session_send(struct lookup_session *session)
{
	struct lookup *lookup = session->lookup;
	const struct postgres_argument *arguments;
	struct lane_entry *first, *entry;
	struct receive_args receives;
	size_t turn = lookup->turn, most = 1, tried = 0;
	int n;

	if (!postgres_idle(session->postgres))
		return;
	do {
		if (tried++ == LANES_N)
			return;
		turn = (turn + 1) % LANES_N;
	} while (lookup->lanes[turn].n == 0 ||
		 (turn != LANE_OWN && lookup->trust != LOOKUP_TRUSTED));
	lookup->turn = turn;

	if (turn >= LANE_ISSUED)
		most = turn == LANE_STATUS_USERS ? LOOKUP_USERS_MAX : LOOKUP_MANY_MAX;
	lane_take(&lookup->lanes[turn], most, INT64_MAX, &session->sent);
	first = STAILQ_FIRST(&session->sent);
	arguments = first->arguments;
	n = first->n;
	receive_args_init(&receives);
	if (first->receive.coupon) {
		STAILQ_FOREACH (entry, &session->sent, next)
			receive_args_add(&receives, &entry->receive);
		arguments = receives.arguments;
		n = first->query->lane == LANE_STATUS_USERS ? 2 : RECEIVE_ARGS_N;
	} else if (first->coupon) {
		first->arguments[0] = postgres_array(&first->array);
		postgres_array_init(&first->array, POSTGRES_INT8);
		STAILQ_FOREACH (entry, &session->sent, next)
			postgres_array_add_number(&first->array, entry->coupon);
	}

	metrics_add(lookup->profile->sent, first->query->is_routine ? 0 : 1);
	session->trust_n = lookup->trust_n;
	postgres_send(session->postgres, first->query->sql, n, arguments,
		      clock_monotonic_ms() + lookup->timeout_ms);
	receive_args_fini(&receives);
	socket_watch(session);
	ticker_start(lookup->ticker);
}

static void waiting_send(struct lookup *lookup)
{
	for (size_t i = 0; i < lookup->sessions_n && lookup_waiting(lookup) > 0; i++)
		session_send(&lookup->sessions[i]);
}

static int is_refused(const struct lookup *lookup)
{
	return lookup->trust == LOOKUP_PUT_BACK || lookup->trust == LOOKUP_OLD ||
	       lookup->trust == LOOKUP_FOREIGN;
}

void lookup_trust(struct lookup *lookup, enum lookup_trust trust)
{
	lookup->refused[0] = '\0';
	if (lookup->trust == trust)
		return;
	lookup->trust = trust;
	lookup->trust_n++;
	if (is_refused(lookup))
		waiting_fail(lookup, LANE_OWN + 1, INT64_MAX);
	waiting_send(lookup);
}

static void on_listening(void *context, const PGresult *rows)
{
	(void)context;
	(void)rows;
}

static void session_step(struct lookup_session *session)
{
	struct lookup *lookup = session->lookup;
	struct postgres *postgres = session->postgres;
	enum postgres_event event = postgres_step(postgres, clock_monotonic_ms());
	PGresult *rows;
	size_t ready;
	int good;

	/* The number of its socket is free for another one. */
	if (postgres_fd(postgres) < 0)
		socket_forget(session);
	switch (event) {
	case POSTGRES_NOTHING:
		break;
	case POSTGRES_CONNECTED:
		trace_state(TRACE_LOOKUP, (int64_t)postgres_connects_n(postgres), "down", "ready");
		session->was_up = 1;
		log_info(lookup->profile->ready_event,
			 LOG_S("database", PQdb(postgres_libpq(postgres))));
		metrics_set(lookup->profile->up, (int64_t)sessions_ready(lookup));
		if (!lookup->is_replica)
			lookup_trust(lookup, LOOKUP_NOT_COMPARED);
		/* Sent apart from the session: a standby would refuse the session with it. */
		if (lookup->keys_notified)
			lookup_ask(lookup, LOOKUP_LISTEN, 0, NULL, on_listening, NULL);
		session_send(session);
		break;
	case POSTGRES_ENDED:
		/* An error that the server reports fails this statement alone. */
		good = postgres_failure(postgres) == POSTGRES_OK;
		rows = postgres_result_take(postgres);
		if (!good) {
			snprintf(lookup->refused, REFUSED_SIZE, "%s", postgres_why(postgres));
			log_warn(lookup->profile->refused_event,
				 LOG_S("error", postgres_why(postgres)));
		}
		sent_end(session, good ? rows : NULL);
		PQclear(rows);
		session_send(session);
		break;
	case POSTGRES_LOST:
		/* With the last session all waiting look-ups fail: none waits for it. */
		ready = sessions_ready(lookup);
		trace_state(TRACE_LOOKUP, (int64_t)postgres_connects_n(postgres),
			    session->was_up ? "ready" : "down", "down");
		session->was_up = 0;
		metrics_set(lookup->profile->up, (int64_t)ready);
		ticker_start(lookup->ticker);
		sent_end(session, NULL);
		if (ready == 0)
			waiting_fail(lookup, 0, INT64_MAX);
		break;
	}
	socket_watch(session);
}

static void on_socket(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	session_step(data);
}

static void on_notified(void *context, const char *payload)
{
	struct lookup *lookup = context;
	int64_t coupon = 0;

	/* couponmq_terms has the id of a coupon, couponmq_keys nothing. NULL: any may be missed. */
	if (lookup->keys_notified && (!payload || !*payload))
		lookup->keys_notified(lookup->keys_context);
	if (lookup->terms_changed && (!payload || *payload)) {
		if (payload)
			(void)id_parse(payload, strlen(payload), &coupon);
		lookup->terms_changed(lookup->terms_context, coupon);
	}
}

void lookup_on_terms(struct lookup *lookup, void (*changed)(void *context, int64_t coupon),
		     void *context)
{
	lookup->terms_changed = changed;
	lookup->terms_context = context;
}

void lookup_on_keys(struct lookup *lookup, void (*notified)(void *context), void *context)
{
	lookup->keys_notified = notified;
	lookup->keys_context = context;
}

static int on_tick(void *context)
{
	struct lookup *lookup = context;
	int64_t now_ms = clock_monotonic_ms();
	int is_idle = 1;

	for (size_t i = 0; i < lookup->sessions_n; i++)
		if (now_ms >= postgres_deadline_ms(lookup->sessions[i].postgres))
			session_step(&lookup->sessions[i]);
	waiting_fail(lookup, 0, now_ms - lookup->timeout_ms);
	if (is_refused(lookup))
		waiting_fail(lookup, LANE_OWN + 1, INT64_MAX);
	for (size_t i = 0; i < lookup->sessions_n; i++)
		is_idle &= postgres_deadline_ms(lookup->sessions[i].postgres) == INT64_MAX;
	return !is_idle || lookup_waiting(lookup) > 0;
}

struct lookup *lookup_new(struct event_base *base, const struct config *config, enum lookup_use id)
{
	const struct lookup_profile *profile = &profiles[id];
	int shows = id == LOOKUP_SHOWING, is_replica = shows && *config->database_read_url;
	size_t sessions_n = shows ? (size_t)config->read_connections : 1;
	struct lookup *lookup = checked(
		calloc(1, sizeof(*lookup) + sessions_n * sizeof(lookup->sessions[0])));
	const struct postgres_options session = {
		.url = is_replica ? config->database_read_url : config->database_url,
		.application_name = profile->application_name,
		.connect_timeout_ms = config->call_timeout_ms,
		.statement_timeout_ms = config->call_timeout_ms,
		/* fails this statement, before the session and what waits behind it */
		.lock_timeout_ms = config->call_timeout_ms / 4 + 1,
		.session = profile->session,
		.prepared = profile->prepared,
		.is_synchronous = id == LOOKUP_DECIDING && durability_is_synchronous(config),
		.judged = sql_query_receive_committed,
		.reconnects = 1,
		.looks_up = 1,
		.lost_event = profile->lost_event,
		.unreachable_event = profile->lost_event,
		.notice_event = "database_notice",
		.notified = on_notified,
		.context = lookup,
	};

	lookup->profile = profile;
	lookup->base = base;
	lookup->timeout_ms = config->call_timeout_ms;
	lookup->is_replica = is_replica;
	lookup->trust = is_replica ? LOOKUP_TRUSTED : LOOKUP_NOT_COMPARED;
	lookup->sessions_n = sessions_n;
	for (size_t i = 0; i < LANES_N; i++)
		lane_init(&lookup->lanes[i],
			  i == LANE_ISSUED ? SIZE_MAX : (size_t)config->reads_max);
	lookup->ticker = ticker_new(base, TICK_MS, on_tick, lookup);
	for (size_t i = 0; i < lookup->sessions_n; i++) {
		lookup->sessions[i].lookup = lookup;
		STAILQ_INIT(&lookup->sessions[i].sent);
		lookup->sessions[i].postgres = postgres_new(&session);
	}
	for (size_t i = 0; i < lookup->sessions_n; i++)
		session_step(&lookup->sessions[i]);
	ticker_start(lookup->ticker);
	return lookup;
}

void lookup_close(struct lookup *lookup)
{
	for (size_t i = 0; i < lookup->sessions_n; i++)
		postgres_close(lookup->sessions[i].postgres);
	metrics_set(lookup->profile->up, 0);
}

int lookup_ask(struct lookup *lookup, enum lookup_query what, int n,
	       const struct postgres_argument *arguments, lookup_fn *done, void *context)
{
	const struct lane_query *query = &queries[what];
	int64_t coupon = query->lane < LANE_COUPONS ? 0 : arguments[0].number;
	int rc = lane_add(&lookup->lanes[query->lane], query, coupon, n, arguments, done, context);

	if (rc)
		metrics_add(lookup->profile->refused, 1);
	else
		waiting_send(lookup);
	if (lookup_waiting(lookup) > 0)
		ticker_start(lookup->ticker);
	return rc;
}

int lookup_receive(struct lookup *lookup, enum lookup_query what, const struct receive *receive,
		   lookup_receive_fn *done, void *context)
{
	const struct lane_query *query = &queries[what];
	struct lane *lane = &lookup->lanes[query->lane];
	struct lane_entry *entry;

	if (lane->n >= lane->max) {
		metrics_add(lookup->profile->refused, 1);
		return -1;
	}
	entry = entry_new(query, 0, 0, NULL);
	entry->receive = *receive;
	asker_add(entry, &(struct lane_asker){ .done_receive = done, .context = context });
	STAILQ_INSERT_TAIL(&lane->entries, entry, next);
	lane->n++;

	waiting_send(lookup);
	if (lookup_waiting(lookup) > 0)
		ticker_start(lookup->ticker);
	return 0;
}

uint64_t lookup_connects_n(const struct lookup *lookup)
{
	uint64_t n = 0;

	for (size_t i = 0; i < lookup->sessions_n; i++)
		n += postgres_connects_n(lookup->sessions[i].postgres);
	return n;
}

int lookup_is_connected(const struct lookup *lookup)
{
	return sessions_ready(lookup) > 0;
}

const char *lookup_trouble(const struct lookup *lookup)
{
	if (!lookup_is_connected(lookup))
		return postgres_why(lookup->sessions[0].postgres);
	switch (lookup->trust) {
	case LOOKUP_NOT_COMPARED:
		return *lookup->refused ? lookup->refused
					: "not yet compared with the copy in Redis";
	case LOOKUP_PUT_BACK:
		return "put back to an earlier moment; run couponctl recover";
	case LOOKUP_OLD:
		return RELATION_OLD_TEXT "; " SERVER_OLD_MEND;
	case LOOKUP_FOREIGN:
		return RELATION_FOREIGN_TEXT "; see couponctl installation";
	case LOOKUP_TRUSTED:
		break;
	}
	return NULL;
}
