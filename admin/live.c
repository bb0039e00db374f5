/*
 * The thread owns the connections. Under the lock are the last sample, whom it is for, and when to
 * stop; the lookers are the loop's.
 */
#include "admin/live.h"

#include "admin/metrics.h"
#include "admin/scrape.h"
#include "common/array.h"
#include "common/clock.h"
#include "admin/proxy_user.h"
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
	char key[PROXY_USER_MAX + 1]; /* who looks */
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

/* ---- the thread: the stores */

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

/* Asks PostgreSQL. NULL: it is away. */
static PGresult *ask(struct live *live, const char *sql, int n,
		     const struct postgres_argument *arguments)
{
	static const struct postgres_patience patience = { .timeout_ms = TIMEOUT_MS };

	return postgres_ask(live->postgres, sql, n, arguments, &patience);
}

/* Reads the campaigns that are near, and those that clients have asked for. NULL: it is away. */
static PGresult *postgres_look(struct live *live, cJSON *stores)
{
	int64_t begin_us, ids[LIVE_ALL_MAX + LIVE_NEAR];
	struct postgres_array array;
	PGresult *rows;
	size_t n;

	if (!postgres_up(live->postgres) && postgres_open(live->postgres) != 0) {
		store_add(stores, "postgresql", postgres_why(live->postgres), 0);
		return NULL;
	}
	begin_us = clock_monotonic_us();
	if (!live->near_ms || clock_monotonic_ms() - live->near_ms >= NEAR_EVERY_MS) {
		PGresult *near = ask(live, sql_query_live_near,
				     POSTGRES_ARGUMENTS(postgres_number(LIVE_NEAR))),
			 *states = ask(live, sql_query_live_states, 0, NULL);

		/* Which active campaigns are near, and how many there are in each state. */
		if (near) {
			live->near_n = 0;
			for (int row = 0; row < PQntuples(near); row++)
				live->near[live->near_n++] = column_number(near, row, "id");
			live->near_ms = clock_monotonic_ms();
		}
		if (states) {
			cJSON_Delete(live->states);
			live->states = output_object();
			for (int row = 0; row < PQntuples(states); row++)
				output_number(live->states, column_text(states, row, "state"),
					      column_number(states, row, "n"));
		}
		PQclear(near);
		PQclear(states);
	}
	n = live->near_n;
	memcpy(ids, live->near, n * sizeof(*ids));
	pthread_mutex_lock(&live->lock);
	memcpy(ids + n, live->asked, live->asked_n * sizeof(*ids));
	n += live->asked_n;
	pthread_mutex_unlock(&live->lock);
	n = numbers_unique(ids, n);
	postgres_array_init(&array, POSTGRES_INT8);
	for (size_t i = 0; i < n; i++)
		postgres_array_add_number(&array, ids[i]);
	rows = ask(live, sql_query_live_campaigns, POSTGRES_ARGUMENTS(postgres_array(&array)));
	postgres_array_fini(&array);
	store_add(stores, "postgresql", rows ? NULL : postgres_why(live->postgres),
		  clock_monotonic_us() - begin_us);
	return rows;
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

/* Adds what Redis has of a campaign, whose state in PostgreSQL is the row. */
static void redis_add(cJSON *campaign, const PGresult *rows, int row, const struct redis_coupon *c)
{
	cJSON *object = output_object();
	int64_t unseen = c->seq - column_number(rows, row, "seq");

	output_add(campaign, "redis", object);
	output_text(object, "status", c->status);
	output_number(object, "version", c->version);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", redis_coupon_taken(c));
	output_number(object, "reserved", c->reserved);
	output_number(object, "lost", c->lost);
	output_number(object, "generation", c->generation);

	/* What this generation has given out and PostgreSQL has not seen is in flight, too. */
	if (unseen < 0 || c->generation != column_number(rows, row, "generation"))
		unseen = 0;
	cJSON_DeleteItemFromObject(campaign, "in_flight");
	output_number(campaign, "in_flight", column_number(rows, row, "in_flight") + unseen);
}

/* Adds a campaign for each row, in the order of the rows. */
static void campaigns_add(struct live *live, cJSON *list, const PGresult *rows, int has_redis)
{
	int held[LIVE_ALL_MAX + LIVE_NEAR] = { 0 };
	char key[COUPON_KEY_SIZE];
	struct redis_coupon c;
	cJSON *campaign;
	int row;

	for (row = 0; has_redis && row < PQntuples(rows); row++) {
		const char *argv[] = { "HGETALL", coupon_key(column_number(rows, row, "coupon"),
							     COUPON_KEY_COUPON, key) };

		redis_client_append(live->redis, 2, argv);
	}
	for (row = 0; row < PQntuples(rows); row++) {
		redisReply *hash = has_redis ? redis_client_next(live->redis) : NULL;

		campaign = output_object();
		output_row(campaign, rows, row);
		if (hash && hash->type == REDIS_REPLY_ARRAY && hash->elements > 0) {
			redis_coupon_parse(&c, hash);
			held[row] = redis_coupon_is_held(&c);
			redis_add(campaign, rows, row, &c);
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

/* PostgreSQL is read first: then every settled receive is in the state of Redis. */
static char *sample_make(struct live *live)
{
	cJSON *sample = output_object(), *stores = output_object(), *campaigns;
	char at[CLOCK_RFC3339_SIZE], *text;
	PGresult *rows = postgres_look(live, stores);
	const char *argv[] = { "PING" };
	redisReply *reply = NULL;
	int64_t begin_us = 0;
	int has_redis;

	if (redis_client_open(live->redis) == 0) {
		begin_us = clock_monotonic_us();
		reply = redis_client_call(live->redis, 1, argv);
	}
	store_add(stores, "redis", reply ? NULL : redis_client_error(live->redis),
		  clock_monotonic_us() - begin_us);
	freeReplyObject(reply);
	has_redis = reply != NULL;

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

static void *run(void *data)
{
	struct live *live = data;
	int64_t due_ms = 0; /* of the next sample */
	int rests = 0;

	while (!live->thread.stops) {
		int is_due = clock_monotonic_ms() >= due_ms;
		size_t lookers_n;
		char *text;

		pthread_mutex_lock(&live->lock);
		lookers_n = live->lookers_n;
		pthread_mutex_unlock(&live->lock);
		if (is_due && lookers_n > 0) {
			due_ms = clock_monotonic_ms() + EVERY_MS;
			text = sample_make(live);
			pthread_mutex_lock(&live->lock);
			free(live->sample);
			live->sample = text;
			pthread_mutex_unlock(&live->lock);
			wake_send(live->fd);
			rests = 0;
			continue;
		}
		if (is_due && !rests) { /* nobody looks */
			postgres_close(live->postgres);
			redis_client_close(live->redis);
			scrape_rest(live->scrape);
			live->near_ms = 0;
			rests = 1;
		}
		thread_pause(&live->thread, is_due ? INT64_MAX : due_ms, NULL, 0);
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

/* Frees a looker whose client is still there: its end concerns nobody from now on. */
static void looker_end(struct looker *looker)
{
	evhttp_connection_set_closecb(evhttp_request_get_connection(looker->request), NULL, NULL);
	looker_free(looker);
}

/* The client has gone; evhttp leaves the request, now without a connection, to the caller. */
static void on_closed(struct evhttp_connection *connection, void *context)
{
	struct looker *looker = context;
	struct live *live = looker->live;

	(void)connection;
	evhttp_request_free(looker->request);
	looker_free(looker);
	(void)asked_tell(live);
}

static void chunk_send(struct evhttp_request *request, const char *event, const char *text)
{
	struct evbuffer *chunk = checked(evbuffer_new());

	check(evbuffer_add_printf(chunk, "event: %s\ndata: %s\n\n", event, text) > 0);
	evhttp_send_reply_chunk(request, chunk);
	evbuffer_free(chunk);
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
		struct evhttp_request *request;
		struct evhttp_connection *connection;
		struct bufferevent *stream;

		next = TAILQ_NEXT(looker, next);
		request = looker->request;
		connection = evhttp_request_get_connection(request);
		stream = evhttp_connection_get_bufferevent(connection);
		if (looker->once) {
			struct evbuffer *body = checked(evbuffer_new());

			looker_end(looker);
			check(evbuffer_add_printf(body, "%s\n", text) > 0);
			evhttp_send_reply(request, 200, NULL, body);
			evbuffer_free(body);
		} else if (!live->may(live->context, looker->request)) {
			chunk_send(request, "end", "{}");
			looker_end(looker);
			evhttp_send_reply_end(request);
		} else if (evbuffer_get_length(bufferevent_get_output(stream)) > BACKLOG_MAX) {
			log_info("live_cut", LOG_S("error", "the client does not read"));
			looker_end(looker);
			evhttp_connection_free(connection); /* and the request */
		} else {
			chunk_send(request, "sample", text);
		}
	}
	free(text);
	(void)asked_tell(live);
}

/* Reads the ids that a looker asks for. 0, or -1: the list is wrong. */
static int asked_read(struct looker *looker, const char *list)
{
	looker->asked = checked(calloc(LIVE_ASKED_MAX, sizeof(*looker->asked)));
	while (*list) {
		size_t len = strcspn(list, ",");

		if (looker->asked_n == LIVE_ASKED_MAX ||
		    id_parse(list, len, &looker->asked[looker->asked_n++]))
			return -1;
		list += len + (list[len] == ',');
	}
	return 0;
}

int live_look(struct live *live, struct evhttp_request *request, const char *key,
	      const char *coupons, int once, const char **why)
{
	struct evhttp_connection *connection = evhttp_request_get_connection(request);
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	struct looker *looker = checked(calloc(1, sizeof(*looker)));
	const struct looker *other;
	size_t of_key_n = 0, asked_n = 0;
	int status = 503;

	looker->live = live;
	looker->request = request;
	looker->once = once;
	snprintf(looker->key, sizeof(looker->key), "%s", key);
	TAILQ_FOREACH (other, &live->lookers, next) {
		of_key_n += strcmp(other->key, key) == 0;
		asked_n += strcmp(other->key, key) == 0 ? other->asked_n : 0;
	}
	*why = "too many clients watch with this key: end other streams";
	if (of_key_n >= LIVE_LOOKERS_OF_KEY_MAX)
		goto refused;
	*why = "too many clients watch already";
	if (live->lookers_n >= LIVE_LOOKERS_MAX) /* which the loop alone writes */
		goto refused;
	*why = "coupons is wrong: allowed are up to 100 ids, joined by commas";
	if (asked_read(looker, coupons)) {
		status = 400;
		goto refused;
	}
	*why = "this key already watches 200 campaigns: ask for fewer, or end other streams";
	if (asked_n + looker->asked_n > LIVE_ASKED_OF_KEY_MAX)
		goto refused;
	*why = "500 campaigns are watched already: ask only for campaigns that others watch, or "
	       "for none";
	TAILQ_INSERT_TAIL(&live->lookers, looker, next);
	if (asked_tell(live)) {
		TAILQ_REMOVE(&live->lookers, looker, next);
		goto refused;
	}

	evhttp_connection_set_closecb(connection, on_closed, looker);
	evhttp_add_header(headers, "Content-Type", once ? "application/json" : "text/event-stream");
	evhttp_add_header(headers, "Cache-Control", "no-store");
	evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
	if (once)
		return 0;
	evhttp_send_reply_start(request, 200, "OK");
	/* Nobody reads what the client sends from now on. */
	bufferevent_setwatermark(evhttp_connection_get_bufferevent(connection), EV_READ, 0,
				 UNREAD_MAX);
	return 0;

refused:
	free(looker->asked);
	free(looker);
	return status;
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
	while ((looker = TAILQ_FIRST(&live->lookers)))
		looker_end(looker);
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
