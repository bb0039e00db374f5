/*
 * The thread owns the connections. Under the lock are the last sample, whom it is for, and when to
 * stop; the lookers are the loop's.
 */
#include "admin/live.h"

#include "admin/metrics.h"
#include "admin/scrape.h"
#include "common/array.h"
#include "common/clock.h"
#include "common/api_keys.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/postgres/postgres_session.h"
#include "common/redis/redis_client.h"
#include "common/thread.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "embed.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#define EVERY_MS 1000
#define NEAR_EVERY_MS 5000
#define TIMEOUT_MS 2000
#define BACKLOG_MAX 4194304 /* bytes that a client has not read: more ends it */
#define UNREAD_MAX 4096     /* bytes of a client that is told, and should say nothing */

struct looker {
	TAILQ_ENTRY(looker) next;
	struct live *live;
	struct evhttp_request *request;
	char key[KEY_ID_LEN + 1]; /* who looks */
	int once;
	int64_t *asked;
	size_t asked_n;
};

struct live {
	const struct config *config;
	live_may_fn *may;
	void *context;
	struct thread thread;

	pthread_mutex_t lock;
	size_t lookers_n;
	int64_t *asked; /* by all of them */
	size_t asked_n;
	char *sample; /* NULL: there is none that is new */

	/* The loop's. */
	int fd; /* readable: there is a sample */
	struct event *told;
	TAILQ_HEAD(lookers, looker) lookers;

	/* The thread's. */
	struct postgres *postgres;
	struct redis_client *redis;
	struct scrape *scrape;
	int64_t near[LIVE_NEAR];
	size_t near_n;
	int64_t near_ms; /* when these were read; 0: never */
	cJSON *states;
};

/* ---- the thread: PostgreSQL */

static PGresult *ask(struct live *live, const char *sql, int n,
		     const struct postgres_argument *arguments)
{
	static const struct postgres_patience patience = { .timeout_ms = TIMEOUT_MS };

	return postgres_ask(live->postgres, sql, n, arguments, &patience);
}

static void states_read(struct live *live)
{
	PGresult *rows = ask(live, sql_query_live_states, 0, NULL);

	if (!rows)
		return;
	cJSON_Delete(live->states);
	live->states = output_object();
	for (int row = 0; row < PQntuples(rows); row++)
		output_number(live->states, column_text(rows, row, "state"),
			      column_number(rows, row, "n"));
	PQclear(rows);
}

static void near_read(struct live *live)
{
	PGresult *rows = ask(live, sql_query_live_near,
			     POSTGRES_ARGUMENTS(postgres_number(LIVE_NEAR)));

	if (!rows)
		return;
	live->near_n = 0;
	for (int row = 0; row < PQntuples(rows); row++)
		live->near[live->near_n++] = column_number(rows, row, "id");
	PQclear(rows);
	live->near_ms = clock_monotonic_ms();
}

/* Adds the campaigns that are near, and those that clients have asked for. */
static void wanted_add(struct live *live, struct postgres_array *array)
{
	int64_t ids[LIVE_ALL_MAX + LIVE_NEAR];
	size_t n = live->near_n;

	memcpy(ids, live->near, n * sizeof(*ids));
	pthread_mutex_lock(&live->lock);
	for (size_t i = 0; i < live->asked_n; i++)
		ids[n++] = live->asked[i];
	pthread_mutex_unlock(&live->lock);
	n = numbers_unique(ids, n);
	for (size_t i = 0; i < n; i++)
		postgres_array_add_number(array, ids[i]);
}

static PGresult *campaigns_read(struct live *live)
{
	struct postgres_array array;
	PGresult *rows;

	if (!live->near_ms || clock_monotonic_ms() - live->near_ms >= NEAR_EVERY_MS) {
		near_read(live);
		states_read(live);
	}
	postgres_array_init(&array, POSTGRES_INT8);
	wanted_add(live, &array);
	rows = ask(live, sql_query_live_campaigns, POSTGRES_ARGUMENTS(postgres_array(&array)));
	postgres_array_fini(&array);
	return rows;
}

/* ---- the thread: Redis */

static void hashes_ask(struct live *live, const PGresult *rows)
{
	char key[COUPON_KEY_SIZE];

	for (int row = 0; row < PQntuples(rows); row++) {
		const char *argv[] = { "HGETALL", coupon_key(column_number(rows, row, "coupon"),
							     COUPON_KEY_COUPON, key) };

		redis_client_append(live->redis, 2, argv);
	}
}

static cJSON *redis_json(const struct redis_coupon *c)
{
	cJSON *object = output_object();

	output_text(object, "status", c->status);
	output_number(object, "version", c->version);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", redis_coupon_taken(c));
	output_number(object, "reserved", c->reserved);
	output_number(object, "lost", c->lost);
	output_number(object, "generation", c->generation);
	return object;
}

/* A keeper is at work on it: how far it is. */
static void rebuild_add(struct live *live, cJSON *campaign, int64_t coupon)
{
	cJSON *rebuild = output_object();
	struct redis_filled filled;

	output_add(campaign, "rebuild", rebuild);
	if (!redis_coupon_filled(live->redis, coupon, &filled))
		return;
	output_number(rebuild, "filled", filled.filled);
	output_number(rebuild, "rows", filled.rows);
	output_number(rebuild, "seconds_left", filled.left_s);
}

/* What Redis has given out in this generation and PostgreSQL has not seen is in flight, too. */
static void unseen_add(cJSON *campaign, const PGresult *rows, int row, const struct redis_coupon *c)
{
	int64_t unseen = c->seq - column_number(rows, row, "seq");

	if (unseen < 0 || c->generation != column_number(rows, row, "generation"))
		unseen = 0;
	cJSON_DeleteItemFromObject(campaign, "in_flight");
	output_number(campaign, "in_flight", column_number(rows, row, "in_flight") + unseen);
}

/* Adds a campaign for each row, in the order of the rows. */
static void campaigns_add(struct live *live, cJSON *list, const PGresult *rows, int has_redis)
{
	int held[LIVE_ALL_MAX + LIVE_NEAR] = { 0 };
	struct redis_coupon c;
	cJSON *campaign;
	int row = 0;

	if (has_redis)
		hashes_ask(live, rows);
	for (; row < PQntuples(rows); row++) {
		redisReply *hash = has_redis ? redis_client_next(live->redis) : NULL;

		campaign = output_object();
		output_row(campaign, rows, row);
		if (hash && hash->type == REDIS_REPLY_ARRAY && hash->elements > 0) {
			redis_coupon_parse(&c, hash);
			held[row] = redis_coupon_is_held(&c);
			output_add(campaign, "redis", redis_json(&c));
			unseen_add(campaign, rows, row, &c);
		} else {
			output_null(campaign, "redis");
		}
		freeReplyObject(hash);
		cJSON_AddItemToArray(list, campaign);
	}
	row = 0;
	cJSON_ArrayForEach(campaign, list)
	{
		if (held[row])
			rebuild_add(live, campaign, column_number(rows, row, "coupon"));
		row++;
	}
}

/* ---- the thread: samples */

static void store_add(cJSON *stores, const char *name, const char *error, int64_t us)
{
	cJSON *store = output_object();

	output_add(stores, name, store);
	output_text(store, "error", error);
	if (error)
		output_null(store, "us");
	else
		output_number(store, "us", us);
}

static PGresult *postgres_look(struct live *live, cJSON *stores)
{
	int64_t begin_us;
	PGresult *rows = NULL;

	if (postgres_up(live->postgres) || postgres_open(live->postgres) == 0) {
		begin_us = clock_monotonic_us();
		rows = campaigns_read(live);
	}
	store_add(stores, "postgresql", rows ? NULL : postgres_why(live->postgres),
		  rows ? clock_monotonic_us() - begin_us : 0);
	return rows;
}

static int redis_look(struct live *live, cJSON *stores)
{
	const char *argv[] = { "PING" };
	redisReply *reply = NULL;
	int64_t begin_us = 0;

	if (redis_client_open(live->redis) == 0) {
		begin_us = clock_monotonic_us();
		reply = redis_client_call(live->redis, 1, argv);
	}
	store_add(stores, "redis", reply ? NULL : redis_client_error(live->redis),
		  clock_monotonic_us() - begin_us);
	freeReplyObject(reply);
	return reply != NULL;
}

/* PostgreSQL is read first: then every settled receive is in the state of Redis. */
static char *sample_make(struct live *live)
{
	cJSON *sample = output_object(), *stores = output_object(), *campaigns;
	char at[CLOCK_RFC3339_SIZE], *text;
	PGresult *rows = postgres_look(live, stores);
	int has_redis = redis_look(live, stores);

	output_text(sample, "at", clock_rfc3339(clock_wall_ms(), at));
	output_add(sample, "stores", stores);
	output_add(sample, "processes", scrape_read(live->scrape));
	if (rows && live->states)
		output_add(sample, "states", cJSON_Duplicate(live->states, 1));
	else
		output_null(sample, "states");
	if (rows) {
		campaigns = checked(cJSON_AddArrayToObject(sample, "campaigns"));
		campaigns_add(live, campaigns, rows, has_redis);
	} else {
		output_null(sample, "campaigns");
	}
	PQclear(rows);
	text = checked(json_write(sample));
	cJSON_Delete(sample);
	return text;
}

static void sample_tell(struct live *live, char *text)
{
	pthread_mutex_lock(&live->lock);
	free(live->sample);
	live->sample = text;
	pthread_mutex_unlock(&live->lock);
	wake_send(live->fd);
}

static void rest(struct live *live)
{
	postgres_close(live->postgres);
	redis_client_close(live->redis);
	scrape_rest(live->scrape);
	live->near_ms = 0;
}

/* Sleeps until the next sample is due and somebody looks, or the thread is to end. */
static void pause_make(struct live *live, int64_t due_ms)
{
	int rests = 0;

	while (!live->thread.stops) {
		int is_due = clock_monotonic_ms() >= due_ms;
		size_t lookers_n;

		pthread_mutex_lock(&live->lock);
		lookers_n = live->lookers_n;
		pthread_mutex_unlock(&live->lock);
		if (is_due && lookers_n > 0)
			return;
		if (is_due && !rests)
			rest(live);
		rests |= is_due;
		thread_pause(&live->thread, is_due ? INT64_MAX : due_ms, NULL, 0);
	}
}

static void *run(void *data)
{
	struct live *live = data;
	int64_t due_ms = 0;

	for (;;) {
		pause_make(live, due_ms);
		if (live->thread.stops)
			return NULL;
		due_ms = clock_monotonic_ms() + EVERY_MS;
		sample_tell(live, sample_make(live));
	}
	return NULL;
}

/* ---- the loop */

/* The thread looks at what all of them ask for. 0, or -1: it would be too much. */
static int asked_tell(struct live *live)
{
	static int64_t asked[(LIVE_LOOKERS_MAX + 1) * LIVE_ASKED_MAX];
	const struct looker *looker;
	size_t n = 0, lookers_n = 0;

	TAILQ_FOREACH (looker, &live->lookers, next) {
		memcpy(asked + n, looker->asked, looker->asked_n * sizeof(*asked));
		n += looker->asked_n;
		lookers_n++;
	}
	n = numbers_unique(asked, n);
	if (n > LIVE_ALL_MAX)
		return -1;
	pthread_mutex_lock(&live->lock);
	memcpy(live->asked, asked, n * sizeof(*asked));
	live->asked_n = n;
	live->lookers_n = lookers_n;
	pthread_mutex_unlock(&live->lock);
	thread_wake(&live->thread);
	metrics_set(METRIC_LOOKERS, (int64_t)lookers_n);
	return 0;
}

static void looker_free(struct looker *looker)
{
	TAILQ_REMOVE(&looker->live->lookers, looker, next);
	free(looker->asked);
	free(looker);
}

/* Its client has gone, and evhttp has left the request to us. */
static void on_closed(struct evhttp_connection *connection, void *context)
{
	struct looker *looker = context;
	struct live *live = looker->live;

	(void)connection;
	evhttp_request_free(looker->request);
	looker_free(looker);
	(void)asked_tell(live);
}

static void chunk_send(struct looker *looker, const char *event, const char *text)
{
	struct evbuffer *chunk = checked(evbuffer_new());

	check(evbuffer_add_printf(chunk, "event: %s\ndata: %s\n\n", event, text) > 0);
	evhttp_send_reply_chunk(looker->request, chunk);
	evbuffer_free(chunk);
}

static void looker_end(struct looker *looker)
{
	evhttp_connection_set_closecb(evhttp_request_get_connection(looker->request), NULL, NULL);
	evhttp_send_reply_end(looker->request);
	looker_free(looker);
}

static void once_tell(struct looker *looker, const char *text)
{
	struct evbuffer *body = checked(evbuffer_new());

	check(evbuffer_add_printf(body, "%s\n", text) > 0);
	evhttp_connection_set_closecb(evhttp_request_get_connection(looker->request), NULL, NULL);
	evhttp_send_reply(looker->request, 200, NULL, body);
	evbuffer_free(body);
	looker_free(looker);
}

static void looker_tell(struct looker *looker, const char *text)
{
	struct live *live = looker->live;
	struct evhttp_connection *connection = evhttp_request_get_connection(looker->request);
	struct bufferevent *stream = evhttp_connection_get_bufferevent(connection);

	if (looker->once) {
		once_tell(looker, text);
	} else if (!live->may(live->context, looker->request)) {
		chunk_send(looker, "end", "{}");
		looker_end(looker);
	} else if (evbuffer_get_length(bufferevent_get_output(stream)) > BACKLOG_MAX) {
		log_info("live_cut", LOG_S("error", "its client does not read"));
		evhttp_connection_set_closecb(connection, NULL, NULL);
		looker_free(looker);
		evhttp_connection_free(connection); /* and the request */
	} else {
		chunk_send(looker, "sample", text);
	}
}

static void on_told(evutil_socket_t fd, short what, void *context)
{
	struct live *live = context;
	struct looker *looker, *next;
	char *text;

	(void)what;
	if (!wake_take(fd))
		return;
	pthread_mutex_lock(&live->lock);
	text = live->sample;
	live->sample = NULL;
	pthread_mutex_unlock(&live->lock);
	for (looker = TAILQ_FIRST(&live->lookers); looker && text; looker = next) {
		next = TAILQ_NEXT(looker, next);
		looker_tell(looker, text);
	}
	free(text);
	(void)asked_tell(live);
}

/* 0, or -1: it is no such list. */
static int asked_read(struct looker *looker, const char *list)
{
	looker->asked = checked(calloc(LIVE_ASKED_MAX, sizeof(*looker->asked)));
	while (list && *list) {
		size_t len = strcspn(list, ",");

		if (looker->asked_n == LIVE_ASKED_MAX ||
		    id_parse(list, len, &looker->asked[looker->asked_n++]))
			return -1;
		list += len + (list[len] == ',');
	}
	return 0;
}

static void reply_begin(struct evhttp_request *request, int once)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);

	evhttp_add_header(headers, "Content-Type", once ? "application/json" : "text/event-stream");
	evhttp_add_header(headers, "Cache-Control", "no-store");
	evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
	if (once)
		return;
	evhttp_send_reply_start(request, 200, "OK");
	/* What the client sends from now on is read by nobody. */
	bufferevent_setwatermark(evhttp_connection_get_bufferevent(
					 evhttp_request_get_connection(request)),
				 EV_READ, 0, UNREAD_MAX);
}

/* Adds it to those that are told. As live_look(). */
static int looker_add(struct looker *looker, const char *coupons, const char **why)
{
	struct live *live = looker->live;
	const struct looker *other;
	size_t of_key_n = 0, asked_n = 0;

	TAILQ_FOREACH (other, &live->lookers, next) {
		of_key_n += strcmp(other->key, looker->key) == 0;
		asked_n += strcmp(other->key, looker->key) == 0 ? other->asked_n : 0;
	}
	*why = "too many clients watch with this key: end other streams";
	if (of_key_n >= LIVE_LOOKERS_OF_KEY_MAX)
		return 503;
	*why = "too many clients watch already";
	if (live->lookers_n >= LIVE_LOOKERS_MAX) /* which the loop alone writes */
		return 503;
	*why = "coupons is wrong: allowed are up to 100 ids, joined by commas";
	if (asked_read(looker, coupons))
		return 400;
	*why = "200 campaigns are watched with this key already: ask for fewer, or end other "
	       "streams";
	if (asked_n + looker->asked_n > LIVE_ASKED_OF_KEY_MAX)
		return 503;
	TAILQ_INSERT_TAIL(&live->lookers, looker, next);
	*why = "500 campaigns are watched already: ask for those that others watch, or for "
	       "none";
	if (asked_tell(live) == 0)
		return 0;
	TAILQ_REMOVE(&live->lookers, looker, next);
	return 503;
}

int live_look(struct live *live, struct evhttp_request *request, const char *key,
	      const char *coupons, int once, const char **why)
{
	struct looker *looker = checked(calloc(1, sizeof(*looker)));
	int status;

	looker->live = live;
	looker->request = request;
	looker->once = once;
	snprintf(looker->key, sizeof(looker->key), "%s", key);
	status = looker_add(looker, coupons, why);
	if (status) {
		free(looker->asked);
		free(looker);
		return status;
	}
	evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_closed, looker);
	reply_begin(request, once);
	return 0;
}

struct live *live_start(struct event_base *base, const struct config *config, live_may_fn *may,
			void *context)
{
	struct live *live = checked(calloc(1, sizeof(*live)));

	live->config = config;
	live->may = may;
	live->context = context;
	live->asked = checked(calloc(LIVE_ALL_MAX, sizeof(*live->asked)));
	TAILQ_INIT(&live->lookers);
	live->fd = wake_new();
	live->told = checked(event_new(base, live->fd, EV_READ | EV_PERSIST, on_told, live));
	check(event_add(live->told, NULL) == 0);
	live->redis = redis_client_new(config->redis_url, NULL);
	live->postgres = postgres_new(
		&(struct postgres_options){ .url = config->database_url,
					    .application_name = "coupon-admin live",
					    .connect_timeout_ms = TIMEOUT_MS,
					    .statement_timeout_ms = TIMEOUT_MS });
	live->scrape = scrape_new(config);
	check(pthread_mutex_init(&live->lock, NULL) == 0);
	thread_start(&live->thread, run, live);
	return live;
}

void live_stop(struct live *live)
{
	struct looker *looker;

	thread_stop(&live->thread);
	while ((looker = TAILQ_FIRST(&live->lookers))) {
		evhttp_connection_set_closecb(evhttp_request_get_connection(looker->request), NULL,
					      NULL);
		looker_free(looker);
	}
	event_free(live->told);
	close(live->fd);
	postgres_free(live->postgres);
	redis_client_free(live->redis);
	scrape_free(live->scrape);
	cJSON_Delete(live->states);
	pthread_mutex_destroy(&live->lock);
	free(live->asked);
	free(live->sample);
	free(live);
}
