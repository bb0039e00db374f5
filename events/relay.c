/*
 * The thread owns everything here but `thread`. A turn:
 *
 *	PostgreSQL ──oldest rows──▶ packets ──messages──▶ RabbitMQ
 *	     ▲                                                   │
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
#include "common/message/number.h"
#include "common/postgres/postgres_session.h"
#include "common/rabbit/rabbit_publisher.h"
#include "embed.h"
#include "common/thread.h"
#include "events/event.h"
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
#define DOWN_MS 100          /* while RabbitMQ is away */
#define STANDBY_MS 2000      /* while another worker has the lock */
#define RABBIT_WAIT_MS 10000 /* for the broker to take a message, and to confirm all of them */
#define POLL_MS 100
#define LAG_EVERY_MS 5000
#define LAG_EVERY_MOST_MS 30000 /* the session must not be idle for long */
#define STOP_MS 1000            /* for the statement that runs */
#define ALARM_EVERY_MS 60000
#define SOURCE_LEN_MAX 200
#define NICE 10
#define CONTENT_TYPE "application/cloudevents-batch+json; charset=utf-8"
#define ROUTING_KEY_SIZE 64 /* event.COUPON.TYPE */

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
	struct rabbit_publisher_port port;
	struct rabbit_publisher *publisher;
	int is_refused; /* RabbitMQ refused a message, or it is lost with the connection */
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

/* Connects to RabbitMQ when that is due, and reads what it has sent. Does not wait. */
static struct rabbit_link *link_read(struct relay *relay)
{
	struct rabbit_link *link = rabbit_publisher_link(relay->publisher);

	rabbit_link_step(link, clock_monotonic_ms());
	rabbit_link_read(link);
	return link;
}

static void poll_until(struct relay *relay, int64_t until_ms, short events)
{
	struct rabbit_link *link = rabbit_publisher_link(relay->publisher);
	int64_t deadline_ms = rabbit_link_deadline_ms(link, clock_monotonic_ms());
	const struct pollfd fd = { .fd = rabbit_link_fd(link), .events = events };

	thread_pause(&relay->thread, deadline_ms < until_ms ? deadline_ms : until_ms, &fd, 1);
}

static char any; /* the item of every message */

static void message_done(void *context, void *item, enum confirm_result result)
{
	struct relay *relay = context;

	(void)item;
	relay->is_refused |= result != CONFIRM_DONE;
}

/*
 * Waits until all messages are confirmed, or until one can be sent. NULL, or why that cannot be
 * expected: a text that is valid until the next call.
 */
static const char *rabbit_await(struct relay *relay, int for_confirms)
{
	struct rabbit_publisher *publisher = relay->publisher;
	struct rabbit_link *link = rabbit_publisher_link(publisher);
	int64_t until_ms = clock_monotonic_ms() + RABBIT_WAIT_MS;
	const char *why;
	int is_there;

	for (;;) {
		rabbit_link_read(link);
		is_there = for_confirms ? rabbit_publisher_open(publisher) == 0
					: rabbit_publisher_ready(publisher);
		why = NULL;
		if (!rabbit_link_up(link))
			why = rabbit_link_trouble(link);
		else if (rabbit_link_blocked(link))
			why = "RabbitMQ accepts no messages: it has a memory or disk alarm";
		else if (relay->is_refused)
			why = "RabbitMQ refused a message";
		else if (relay->thread.stops)
			why = "the worker stops";
		else if (clock_monotonic_ms() >= until_ms)
			why = "RabbitMQ does not answer";
		if (is_there || why)
			break;
		/* With a full window it waits for a confirm, with a full socket for that. */
		poll_until(relay, clock_monotonic_ms() + POLL_MS,
			   for_confirms || rabbit_link_writable(link) ? POLLIN : POLLIN | POLLOUT);
	}
	/* What is confirmed is so, whatever has happened since. */
	return is_there && for_confirms && !relay->is_refused ? NULL : why;
}

/* Sends a packet to RabbitMQ, unless that has failed in this turn, and notes it for webhooks. */
static void packet_send(void *context, const struct event_packet *packet)
{
	struct relay *relay = context;
	const char *type = event_type_text(packet->type);
	char key[ROUTING_KEY_SIZE], coupon[NUMBER_SIZE];
	/* CloudEvents has no attributes of a batch: these are those that all its events share. */
	const char *const attributes[][2] = {
		{ "cloudEvents_specversion", "1.0" },
		{ "cloudEvents_source", relay->config->event_source },
		{ "cloudEvents_type", type },
		{ "cloudEvents_subject", number_text(packet->coupon, coupon) },
	};
	amqp_table_entry_t headers[4];
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.content_type = amqp_cstring_bytes(CONTENT_TYPE),
		.headers = { .num_entries = 4, .entries = headers },
	};

	if (relay->why)
		return;
	relay->why = rabbit_await(relay, 0);
	if (relay->why)
		return;
	for (int i = 0; i < 4; i++) {
		headers[i].key = amqp_cstring_bytes(attributes[i][0]);
		headers[i].value.kind = AMQP_FIELD_KIND_UTF8;
		headers[i].value.value.bytes = amqp_cstring_bytes(attributes[i][1]);
	}
	snprintf(key, sizeof(key), "event.%" PRId64 ".%s", packet->coupon, type);
	rabbit_publisher_send(relay->publisher, AMQP_EVENT_EXCHANGE, key, &properties,
			      (amqp_bytes_t){ .len = packet->len, .bytes = packet->body }, &any);
	relay->events += packet->events;
	relay->messages++;

	if (relay->has_webhooks) {
		postgres_array_add_number(&relay->done[DONE_COUPONS], packet->coupon);
		postgres_array_add_text(&relay->done[DONE_TYPES], type, strlen(type));
		postgres_array_add_text(&relay->done[DONE_EVENTS], packet->body, packet->len);
	}
}

/*
 * After a failure: forgets what was sent. A connection with open messages is closed; one that is
 * lost, or whose messages are all answered, goes on.
 */
static void publisher_reset(struct relay *relay)
{
	if (rabbit_link_up(rabbit_publisher_link(relay->publisher)) &&
	    rabbit_publisher_open(relay->publisher) > 0) {
		rabbit_publisher_close(relay->publisher);
		rabbit_publisher_free(relay->publisher);
		relay->publisher = rabbit_publisher_new("events", relay->config->amqp_url,
							&relay->port, relay);
	}
	relay->is_refused = 0;
}

/* Publishes these rows and removes them. Returns how long to pause after it. */
static int64_t rows_relay(struct relay *relay, const PGresult *rows)
{
	struct postgres_argument arguments[DONE_N];
	int64_t gather_ms, id;
	PGresult *removed;
	int is_full;

	for (int i = 0; i < DONE_N; i++)
		postgres_array_clear(&relay->done[i]);
	packets_clear(relay->packets);
	relay->why = NULL;
	relay->events = 0;
	relay->messages = 0;
	relay->has_webhooks = truth_take(query(relay, sql_query_event_webhooks, 0, NULL));
	if (relay->has_webhooks < 0)
		return backoff_ms(&relay->backoff);

	/* Publish all, and wait until all are confirmed. */
	fault_point(FAULT_RELAY_BEFORE_PUBLISH);
	for (int i = 0; !relay->why && i < PQntuples(rows); i++) {
		/* A malformed row, which no program writes, must not keep the others back. */
		if (packets_add(relay->packets, rows, i, &id))
			log_error("event_row_malformed", LOG_I("id", id));
		postgres_array_add_number(&relay->done[DONE_IDS], id);
	}
	if (!relay->why)
		packets_close(relay->packets);
	if (!relay->why)
		relay->why = rabbit_await(relay, 1);
	if (relay->why) {
		metrics_add(METRIC_RELAY_FAILURES, 1);
		if (!relay->thread.stops &&
		    backoff_tells(&relay->backoff, relay->why, clock_monotonic_ms()))
			log_warn("events_not_published", LOG_S("why", relay->why));
		publisher_reset(relay); /* the text may be the publisher's */
		relay->why = NULL;
		return backoff_ms(&relay->backoff);
	}

	/* Remove them, and pass them on to webhooks. */
	fault_point(FAULT_RELAY_BEFORE_DELETE);
	for (int i = 0; i < DONE_N; i++)
		arguments[i] = postgres_array(&relay->done[i]);
	removed = query(relay, sql_query_event_log_remove, DONE_N, arguments);
	PQclear(removed);
	if (!removed) {
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

/* Runs one turn. Returns how long to pause after it. */
static int64_t turn(struct relay *relay)
{
	struct rabbit_link *link;
	int64_t pause_ms = IDLE_MS;
	PGresult *rows;
	int held;

	/* RabbitMQ belongs to the installation that Redis follows. */
	if (!relation_is_followed(keeper_state().relation))
		return standby(DOWN_MS);
	held = lock_take(relay);
	metrics_set(METRIC_RELAY_ACTIVE, held > 0);
	if (held <= 0)
		return standby(held ? backoff_ms(&relay->backoff) : STANDBY_MS);
	if (lag_step(relay))
		return backoff_ms(&relay->backoff);
	link = link_read(relay);
	if (!rabbit_link_up(link) || rabbit_link_blocked(link))
		return DOWN_MS;

	/* The oldest rows: at least one, if there are any, and no more than EVENTS_MAX events. */
	rows = query(relay, sql_query_event_log_read,
		     POSTGRES_ARGUMENTS(postgres_number(relay->rows_max),
					postgres_number(EVENTS_MAX)));
	if (!rows)
		return backoff_ms(&relay->backoff);
	if (PQntuples(rows) > 0)
		pause_ms = rows_relay(relay, rows);
	PQclear(rows);
	return pause_ms;
}

static void *run(void *argument)
{
	struct relay *relay = argument;

	/* Settling goes first. The nice value is this thread's alone; a failure does no harm. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (!relay->thread.stops) {
		int64_t pause_ms = turn(relay), until_ms = clock_monotonic_ms() + pause_ms;

		/* The connection to RabbitMQ is kept alive during the pause. */
		while (!relay->thread.stops && clock_monotonic_ms() < until_ms) {
			poll_until(relay, until_ms, POLLIN);
			link_read(relay);
		}
	}
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
	relay->port.done = message_done;
	relay->port.drops_unrouted = 1;
	relay->publisher = rabbit_publisher_new("events", config->amqp_url, &relay->port, relay);
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
	/* Open messages are not waited for: their events are still in the log. */
	rabbit_publisher_close(relay->publisher);
	rabbit_publisher_free(relay->publisher);
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
