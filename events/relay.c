/*
 * The thread owns everything here but `thread`. A turn:
 *
 *	PostgreSQL ──oldest rows──▶ packets ──messages──▶ outlet ──▶ RabbitMQ
 *	     ▲                                                              │
 *	     └── these are removed; webhooks get their events ◀── all confirmed
 *
 * A turn that fails is repeated from the oldest row, with fewer rows if PostgreSQL could not remove
 * them. So events are published at least once, and those of a coupon in the order of their commits:
 * each relay begins with the oldest event that is not confirmed, and leaves none out.
 */
#include "events/relay.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/postgres/session.h"
#include "embed.h"
#include "common/thread.h"
#include "events/outlet.h"
#include "keeper/keeper.h"
#include "worker/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Limits of one turn: its events are in memory while there are webhooks. */
#define ROWS_MAX 1024
#define EVENTS_MAX 16384
#define IDLE_MS 250 /* until the log is read again when it was empty */
/* After a turn that emptied it events gather, and longer where they become many messages. */
#define GATHER_MS 50
#define GATHER_MOST_MS 1000
#define DOWN_MS 100     /* while RabbitMQ is away */
#define STANDBY_MS 2000 /* while another worker has the lock */
#define LAG_EVERY_MS 5000
#define LAG_EVERY_MOST_MS 30000 /* the session must not be idle for long */
#define STOP_MS 1000            /* for the statement that runs */
#define ALARM_EVERY_MS 60000
#define SOURCE_LEN_MAX 200
#define NICE 10

/* One relay holds this lock of the log; it is lost with the session. */
#define LOCK_NAME "couponmq:events"
#define CONNECT_TIMEOUT_MS 3000
#define STATEMENT_TIMEOUT_MS 20000
#define GRACE_MS 1000 /* the server's timeout expires before ours */
/*
 * A relay that is frozen, or whose machine is gone, must lose its lock: its session ends. A
 * removal that is lost only makes copies, so it does not wait for the disk. The plans must not
 * depend on the size that the log had when it was analyzed.
 */
#define SESSION                                                                              \
	"SET idle_session_timeout = '60s'; SET tcp_keepalives_idle = 10;"                    \
	"SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4;"                     \
	"SET synchronous_commit = off; SET enable_seqscan = off; SET enable_hashjoin = off;" \
	"SET enable_mergejoin = off"

/* What a turn removes, and what it passes on to webhooks: arguments of event_log_remove.sql. */
enum done { DONE_IDS, DONE_COUPONS, DONE_TYPES, DONE_EVENTS, DONE_N };

struct relay {
	const struct config *config;
	struct thread thread;
	struct postgres *postgres; /* blocking */
	uint64_t held_n;           /* the session that holds the lock; 0: none */
	struct outlet *outlet;
	struct packets *packets;
	struct postgres_array done[DONE_N]; /* of this turn */
	int has_webhooks;
	int rows_max;    /* of the next turn: fewer after one that PostgreSQL could not end */
	const char *why; /* publishing has failed in this turn; NULL: it has not */
	int64_t events;  /* published in this turn */
	int64_t messages;
	struct backoff backoff;
	int64_t lag_due_ms, alarm_due_ms;
	int64_t stop_by_ms; /* 0: not stopping, or not noticed yet */
};

/* For the monitor's thread: COUPON_EVENT_LOG_MAX. */
static atomic_int_least64_t events_max;

void relay_check(const struct config *config)
{
	const char *source = config->event_source;
	size_t len = strlen(source);

	for (size_t i = 0; i < len; i++)
		if (source[i] <= ' ' || source[i] > '~' || strchr("\"\\<>^`{|}", source[i]))
			len = 0;
	if (len < 1 || len > SOURCE_LEN_MAX)
		log_fatal("COUPON_EVENT_SOURCE is \"%s\": allowed is a URI reference of 1 to %d "
			  "bytes, for example /couponmq or https://shop.example/coupons",
			  source, SOURCE_LEN_MAX);
}

/* A statement that is about to end may do so when the thread is to stop. */
static int is_over(void *context)
{
	struct relay *relay = context;

	if (relay->thread.stops && !relay->stop_by_ms)
		relay->stop_by_ms = clock_monotonic_ms() + STOP_MS;
	return relay->stop_by_ms && clock_monotonic_ms() >= relay->stop_by_ms;
}

/*
 * NULL: it failed, and the session is lost, and the lock with it: nothing runs in another session
 * before that has the lock.
 */
static PGresult *query(struct relay *relay, const char *sql, int n,
		       const struct postgres_argument *arguments)
{
	const struct postgres_patience patience = { .timeout_ms = STATEMENT_TIMEOUT_MS + GRACE_MS,
						    .waiting = is_over,
						    .context = relay };
	PGresult *result = postgres_query(relay->postgres, sql, n, arguments, &patience);

	if (!result)
		postgres_lose(relay->postgres, NULL);
	return result;
}

/* The first column of a result of one row, which is a truth value; -1: there is no result. */
static int truth_take(PGresult *result)
{
	int truth = result ? strcmp(PQgetvalue(result, 0, 0), "t") == 0 : -1;

	PQclear(result);
	return truth;
}

/* Connects and takes the lock, where that is not done. 1: held; 0: another has it; -1: failed. */
static int lock_take(struct relay *relay)
{
	int locked;

	if (postgres_open(relay->postgres))
		return -1;
	if (relay->held_n == postgres_connects_n(relay->postgres))
		return 1;
	locked = truth_take(
		query(relay, sql_query_lock_try,
		      POSTGRES_ARGUMENTS(postgres_text(LOCK_NAME), postgres_text("write"))));
	if (locked > 0) {
		log_info("relay_elected", LOG_S("lock", LOCK_NAME));
		relay->held_n = postgres_connects_n(relay->postgres);
	}
	return locked;
}

static void done_clear(struct relay *relay)
{
	for (int i = 0; i < DONE_N; i++)
		postgres_array_clear(&relay->done[i]);
	packets_clear(relay->packets);
	relay->why = NULL;
	relay->events = 0;
	relay->messages = 0;
}

static void webhooks_note(struct relay *relay, const struct packet *packet)
{
	const char *type = event_type_text(packet->type);

	postgres_array_add_number(&relay->done[DONE_COUPONS], packet->coupon);
	postgres_array_add_text(&relay->done[DONE_TYPES], type, strlen(type));
	postgres_array_add_text(&relay->done[DONE_EVENTS], packet->body, packet->len);
}

static void packet_send(void *context, const struct packet *packet)
{
	struct relay *relay = context;

	if (relay->why)
		return;
	relay->why = outlet_send(relay->outlet, packet);
	if (relay->has_webhooks)
		webhooks_note(relay, packet);
	relay->events += packet->events;
	relay->messages++;
}

/* A row that is malformed, which no program writes, must not keep the others back. */
static void row_send(struct relay *relay, const PGresult *rows, int number)
{
	int64_t id;

	if (packets_add(relay->packets, rows, number, &id))
		log_error("event_row_malformed", LOG_I("id", id));
	postgres_array_add_number(&relay->done[DONE_IDS], id);
}

/* Until all of them are confirmed. NULL, or why that has failed. */
static const char *rows_publish(struct relay *relay, const PGresult *rows)
{
	fault_point(FAULT_RELAY_BEFORE_PUBLISH);
	for (int i = 0; !relay->why && i < PQntuples(rows); i++)
		row_send(relay, rows, i);
	if (!relay->why)
		packets_close(relay->packets);
	return relay->why ? relay->why : outlet_confirm(relay->outlet);
}

/* 0, or -1. */
static int done_remove(struct relay *relay)
{
	struct postgres_argument arguments[DONE_N];
	PGresult *result;

	for (int i = 0; i < DONE_N; i++)
		arguments[i] = postgres_array(&relay->done[i]);
	result = query(relay, sql_query_event_log_remove, DONE_N, arguments);
	PQclear(result);
	return result ? 0 : -1;
}

/* Publishes these rows and removes them. Returns how long to pause after it. */
static int64_t rows_relay(struct relay *relay, const PGresult *rows)
{
	const char *why;
	int64_t gather_ms;
	int is_full;

	done_clear(relay);
	relay->has_webhooks = truth_take(query(relay, sql_query_event_webhooks, 0, NULL));
	if (relay->has_webhooks < 0)
		return backoff_ms(&relay->backoff);
	why = rows_publish(relay, rows);
	if (why) {
		metrics_add(METRIC_RELAY_FAILURES, 1);
		if (!relay->thread.stops &&
		    backoff_tells(&relay->backoff, why, clock_monotonic_ms()))
			log_warn("events_not_published", LOG_S("why", why));
		outlet_reset(relay->outlet); /* the text was its own */
		relay->why = NULL;
		return backoff_ms(&relay->backoff);
	}
	fault_point(FAULT_RELAY_BEFORE_DELETE);
	if (done_remove(relay)) {
		relay->rows_max = relay->rows_max / 2 + 1;
		return backoff_ms(&relay->backoff);
	}
	metrics_add(METRIC_RELAY_EVENTS, relay->events);
	metrics_add(METRIC_RELAY_MESSAGES, relay->messages);
	backoff_reset(&relay->backoff);
	is_full = PQntuples(rows) == relay->rows_max;
	relay->rows_max = relay->rows_max < ROWS_MAX / 2 ? 2 * relay->rows_max : ROWS_MAX;
	if (is_full || relay->events >= EVENTS_MAX / 2)
		return 0;
	gather_ms = GATHER_MS + relay->messages;
	return gather_ms < GATHER_MOST_MS ? gather_ms : GATHER_MOST_MS;
}

/* The oldest rows: at least one, if there are any, and no more than so many events. */
static int64_t rows_turn(struct relay *relay)
{
	PGresult *rows = query(relay, sql_query_event_log_read,
			       POSTGRES_ARGUMENTS(postgres_number(relay->rows_max),
						  postgres_number(EVENTS_MAX)));
	int64_t pause_ms = IDLE_MS;

	if (!rows)
		return backoff_ms(&relay->backoff);
	if (PQntuples(rows) > 0)
		pause_ms = rows_relay(relay, rows);
	PQclear(rows);
	return pause_ms;
}

/*
 * Sets the metrics of what waits in the log, and returns how many events wait; `lag` NULL: this
 * relay does not know.
 */
static int64_t lag_set(const PGresult *lag)
{
	int64_t events = lag ? column_number(lag, 0, "events_num") : 0;

	metrics_set(METRIC_EVENTS_WAITING, events);
	metrics_set(METRIC_EVENTS_AGE_MS, lag ? column_number(lag, 0, "age_ms") : 0);
	metrics_set(METRIC_EVENTS_BYTES, lag ? column_number(lag, 0, "size_bytes") : 0);
	return events;
}

/* Counting takes long when much waits: then it is done less often. 0, or -1. */
static int lag_step(struct relay *relay)
{
	int64_t begin_ms = clock_monotonic_ms(), end_ms, events;
	PGresult *lag;

	if (begin_ms < relay->lag_due_ms)
		return 0;
	lag = query(relay, sql_query_event_log_lag, 0, NULL);
	end_ms = clock_monotonic_ms();
	relay->lag_due_ms = end_ms + LAG_EVERY_MS + 10 * (end_ms - begin_ms);
	if (relay->lag_due_ms > end_ms + LAG_EVERY_MOST_MS)
		relay->lag_due_ms = end_ms + LAG_EVERY_MOST_MS;
	if (!lag)
		return -1;
	events = lag_set(lag);
	if (events > relay->config->event_log_max && end_ms >= relay->alarm_due_ms) {
		relay->alarm_due_ms = end_ms + ALARM_EVERY_MS;
		log_error("event_log_full", LOG_I("events", events),
			  LOG_I("allowed", relay->config->event_log_max),
			  LOG_I("oldest_ms", column_number(lag, 0, "age_ms")),
			  LOG_I("bytes", column_number(lag, 0, "size_bytes")));
	}
	PQclear(lag);
	return 0;
}

/* Another worker publishes, or none can. */
static int64_t standby(int64_t pause_ms)
{
	lag_set(NULL);
	return pause_ms;
}

static int64_t turn(struct relay *relay)
{
	int held;

	/* RabbitMQ is that of Redis. */
	if (!relation_is_followed(keeper_state().relation))
		return standby(DOWN_MS);
	held = lock_take(relay);
	metrics_set(METRIC_RELAY_ACTIVE, held > 0);
	if (held <= 0)
		return standby(held ? backoff_ms(&relay->backoff) : STANDBY_MS);
	if (lag_step(relay))
		return backoff_ms(&relay->backoff);
	return outlet_ready(relay->outlet) ? rows_turn(relay) : DOWN_MS;
}

static void *run(void *argument)
{
	struct relay *relay = argument;

	/* Settling goes first. Of this thread alone; a failure does no harm. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (!relay->thread.stops)
		outlet_pause(relay->outlet, turn(relay));
	postgres_close(relay->postgres);
	return NULL;
}

struct relay *relay_start(const struct config *config)
{
	struct relay *relay = checked(calloc(1, sizeof(*relay)));

	relay->config = config;
	relay->rows_max = ROWS_MAX;
	atomic_store(&events_max, config->event_log_max);
	relay->postgres = postgres_new(&(struct postgres_options){
		.url = config->database_url,
		.application_name = "coupon-relay",
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.statement_timeout_ms = STATEMENT_TIMEOUT_MS,
		.session = SESSION,
		.binary = sql_query_event_log_read,
		.lost_event = "relay_database_lost",
		.unreachable_event = "relay_database_unreachable",
		.notice_event = "relay_database_notice",
	});
	relay->outlet = outlet_new(config->amqp_url, config->event_source, &relay->thread);
	relay->packets = packets_new(config->event_source, packet_send, relay);
	for (int i = 0; i < DONE_N; i++)
		postgres_array_init(&relay->done[i],
				    i < DONE_TYPES ? POSTGRES_INT8 : POSTGRES_TEXT);
	thread_start(&relay->thread, run, relay);
	return relay;
}

void relay_stop(struct relay *relay)
{
	thread_stop(&relay->thread);
	for (int i = 0; i < DONE_N; i++)
		postgres_array_fini(&relay->done[i]);
	packets_free(relay->packets);
	outlet_free(relay->outlet);
	postgres_free(relay->postgres);
	free(relay);
}

void relay_warnings(cJSON *array)
{
	int64_t waiting = metrics_get(METRIC_EVENTS_WAITING), allowed = atomic_load(&events_max);
	char sentence[192];
	cJSON *item;

	if (waiting <= allowed)
		return;
	snprintf(sentence, sizeof(sentence),
		 "events: %" PRId64 " wait to be published, COUPON_EVENT_LOG_MAX is %" PRId64
		 "; see couponctl installation show --event-log",
		 waiting, allowed);
	item = cJSON_CreateString(sentence);
	check(item != NULL && cJSON_AddItemToArray(array, item));
}
