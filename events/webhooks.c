/*
 * The thread owns everything here but `thread`:
 *
 *	PostgreSQL ──lease──▶ sendings ──POST──▶ endpoints
 *	     ▲                   │ ended
 *	     └──────record───────┘
 *
 * A delivery is leased when a sending is free for it, and is sent at once. No transaction is open
 * meanwhile. The lease ends after the time-out of the request, so a delivery whose
 * worker died is leased again. The keeper's worker also counts what waits, and removes what has
 * expired, even with COUPON_WEBHOOK_CONNECTIONS=0.
 */
#include "events/webhooks.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/postgres/postgres_session.h"
#include "embed.h"
#include "common/thread.h"
#include "events/post.h"
#include "keeper/keeper.h"
#include "worker/metrics.h"

#include <sodium.h>
#include <stdlib.h>

#define LEASE_GRACE_MS 5000 /* of the lease, beyond the time-out of the request */
#define LEASE_EVERY_MS 1000 /* while nothing is announced: what is due to be tried again */
#define COUNT_EVERY_MS 5000
#define EXPIRE_EVERY_MS 60000
#define STOP_MS 2000
/*
 * Requests to one webhook at once, of all workers together: enough that latency does not limit an
 * endpoint, few enough that a slow one leaves COUPON_WEBHOOK_CONNECTIONS to the others.
 */
#define ENDPOINT_REQUESTS_MAX 4
#define RECORD_AGAIN_MS 1000 /* after a failure */

#define CONNECT_TIMEOUT_MS 3000
#define STATEMENT_TIMEOUT_MS 3000
#define QUERY_TIMEOUT_MS 4000 /* the server's time-out comes first */
#define LOCK_TIMEOUT_MS 100

/*
 * One request to a webhook, from its lease until PostgreSQL has its outcome:
 *
 *	FREE ──lease_step()──▶ SENDING ──sending_end()──▶ ENDED ──sending_record()──▶ FREE
 */
enum sending_state { SENDING_FREE, SENDING_SENDING, SENDING_ENDED };

struct webhook_sending {
	enum sending_state state;
	int64_t delivery;
	int64_t lease;
	int64_t webhook;
	int64_t attempts;  /* with this one */
	int64_t lease_ms;  /* when its lease ends, by the monotonic clock */
	struct post *post; /* while it is sent */
	struct post_result result;
	int is_released;  /* it was given up before its end */
	int64_t retry_ms; /* after a failure: it is not recorded before */
};

struct webhooks {
	const struct config *config;
	const struct rules *rules;
	struct thread thread;
	CURLM *multi;
	struct postgres *postgres; /* blocking */
	struct webhook_sending *sendings;
	size_t sendings_n;
	int64_t lease_at_ms, count_ms, expire_ms; /* when each is due */
	int64_t dropped; /* events of all webhooks, when they were last counted; -1: never */
};

static PGresult *ask(struct webhooks *webhooks, const char *sql, int n,
		     const struct postgres_argument *arguments)
{
	static const struct postgres_patience patience = { .timeout_ms = QUERY_TIMEOUT_MS };

	return postgres_ask(webhooks->postgres, sql, n, arguments, &patience);
}

/* It was performed; or `is_released`: it is given up, whatever has become of it. */
static void sending_end(struct webhook_sending *sending, CURLcode code, int is_released)
{
	check(sending->state == SENDING_SENDING);
	sending->is_released = is_released;
	if (!is_released)
		post_result(sending->post, code, &sending->result);
	post_free(sending->post);
	sending->post = NULL;
	sending->state = SENDING_ENDED;
}

/*
 * Writes the outcome to PostgreSQL. Afterwards it is free, unless that failed while its lease
 * lasts: then it is to be called again, after `retry_ms`. A delivery that is another worker's by
 * now, or removed, is not its own.
 */
static void sending_record(struct webhooks *webhooks, struct webhook_sending *sending)
{
	const struct config *config = webhooks->config;
	const struct post_result *result = &sending->result;
	enum post_end end = sending->is_released ? POST_RELEASED
						 : post_end_of(result, sending->attempts,
							       config->webhook_attempts);
	int64_t retry_ms = post_retry_ms(sending->attempts, config->webhook_retry_ms,
					 randombytes_random());
	PGresult *row;

	check(sending->state == SENDING_ENDED);
	row = ask(webhooks, sql_query_webhook_finish,
		  POSTGRES_ARGUMENTS(postgres_number(sending->delivery),
				     postgres_number(sending->lease),
				     postgres_text(post_end_name(end)),
				     postgres_number(result->status),
				     postgres_text(*result->why ? result->why : NULL),
				     postgres_number(retry_ms),
				     postgres_number(post_pause_ms(result)),
				     postgres_number(config->webhook_retry_ms),
				     postgres_number(config->webhook_disable_s)));
	sending->retry_ms = clock_monotonic_ms() + RECORD_AGAIN_MS;
	if (!row && clock_monotonic_ms() < sending->lease_ms)
		return;
	if (row && *column_text(row, 0, "is_own") == 't') {
		switch (end) {
		case POST_DELIVERED:
			metrics_add(METRIC_WEBHOOK_DELIVERED, 1);
			break;
		case POST_RETRY:
		case POST_GONE:
			metrics_add(METRIC_WEBHOOK_FAILED, 1);
			log_warn("webhook_failed", LOG_I("webhook", sending->webhook),
				 LOG_I("delivery", sending->delivery),
				 LOG_I("attempt", sending->attempts),
				 LOG_I("status", result->status), LOG_S("why", result->why));
			break;
		case POST_FAILED:
			metrics_add(METRIC_WEBHOOK_FAILED, 1);
			metrics_add(METRIC_WEBHOOK_GIVEN_UP, 1);
			log_error("webhook_given_up", LOG_I("webhook", sending->webhook),
				  LOG_I("delivery", sending->delivery),
				  LOG_I("attempts", sending->attempts),
				  LOG_I("status", result->status), LOG_S("why", result->why));
			break;
		case POST_RELEASED:
			break;
		}
	}
	if (row && *column_text(row, 0, "disabled_why"))
		log_warn("webhook_disabled", LOG_I("webhook", sending->webhook),
			 LOG_S("why", column_text(row, 0, "disabled_why")));
	PQclear(row);
	sending->state = SENDING_FREE;
}

static struct webhook_sending *sending_find(struct webhooks *webhooks, enum sending_state state)
{
	for (size_t i = 0; i < webhooks->sendings_n; i++)
		if (webhooks->sendings[i].state == state)
			return &webhooks->sendings[i];
	return NULL;
}

static size_t sendings_count(const struct webhooks *webhooks, enum sending_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < webhooks->sendings_n; i++)
		n += webhooks->sendings[i].state == state;
	return n;
}

/* Deliveries were announced, or may have been before this session. */
static void on_notified(void *context, const char *payload)
{
	struct webhooks *webhooks = context;

	(void)payload;
	webhooks->lease_at_ms = 0;
}

/* Takes as many deliveries as can be sent now, when that is due. */
static void lease_step(struct webhooks *webhooks)
{
	size_t free_n = sendings_count(webhooks, SENDING_FREE);
	int64_t lease_ms = webhooks->rules->timeout_ms + LEASE_GRACE_MS;
	int64_t now_ms = clock_monotonic_ms();
	PGresult *rows;
	CURL *curl;

	if (free_n == 0 || now_ms < webhooks->lease_at_ms)
		return;
	webhooks->lease_at_ms = now_ms + LEASE_EVERY_MS;
	if (!relation_is_followed(keeper_state().relation))
		return;
	rows = ask(webhooks, sql_query_webhook_lease,
		   POSTGRES_ARGUMENTS(postgres_number((int64_t)free_n),
				      postgres_number(ENDPOINT_REQUESTS_MAX),
				      postgres_number(lease_ms)));
	for (int row = 0; row < PQntuples(rows); row++) {
		const struct post_request request = {
			.url = column_text(rows, row, "url"),
			.message = column_text(rows, row, "message"),
			.secrets = column_text(rows, row, "secrets"),
			.body = column_text(rows, row, "body"),
		};
		struct webhook_sending *sending = sending_find(webhooks, SENDING_FREE);

		check(sending != NULL);
		*sending = (struct webhook_sending){
			.state = SENDING_ENDED, /* unless it can be sent */
			.delivery = column_number(rows, row, "delivery"),
			.lease = column_number(rows, row, "lease"),
			.webhook = column_number(rows, row, "webhook"),
			.attempts = column_number(rows, row, "attempts") + 1,
			.lease_ms = now_ms + lease_ms,
		};
		sending->post = post_new(webhooks->rules, &request, &sending->result);
		if (!sending->post)
			continue;
		sending->state = SENDING_SENDING;
		curl = post_handle(sending->post);
		check(curl_easy_setopt(curl, CURLOPT_PRIVATE, sending) == CURLE_OK);
		check(curl_multi_add_handle(webhooks->multi, curl) == CURLM_OK);
	}
	PQclear(rows);
}

/* Libcurl's requests, as far as they can go on now. */
static void requests_step(struct webhooks *webhooks)
{
	CURLMsg *message;
	int running, left;

	check(curl_multi_perform(webhooks->multi, &running) == CURLM_OK);
	while ((message = curl_multi_info_read(webhooks->multi, &left))) {
		CURL *curl = message->easy_handle;
		CURLcode code = message->data.result;
		struct webhook_sending *sending;

		check(curl_easy_getinfo(curl, CURLINFO_PRIVATE, (char **)&sending) == CURLE_OK);
		check(curl_multi_remove_handle(webhooks->multi, curl) == CURLM_OK);
		sending_end(sending, code, 0);
	}
}

/*
 * What has ended, to PostgreSQL. Then there may be more to send. A webhook that somebody has locked
 * holds up the others by the time-out of that lock, once a second for each of its sendings.
 */
static void record_step(struct webhooks *webhooks)
{
	for (size_t i = 0; i < webhooks->sendings_n; i++) {
		struct webhook_sending *sending = &webhooks->sendings[i];

		if (sending->state != SENDING_ENDED || clock_monotonic_ms() < sending->retry_ms)
			continue;
		sending_record(webhooks, sending);
		if (sending->state == SENDING_FREE)
			webhooks->lease_at_ms = 0;
	}
}

/* The numbers of all webhooks are those of one worker, so that their sum over workers is right. */
static void count_step(struct webhooks *webhooks)
{
	static const struct {
		enum metric metric;
		const char *column;
	} counts[] = {
		{ METRIC_WEBHOOK_WAITING, "waiting_num" },
		{ METRIC_WEBHOOK_OLDEST, "oldest_ms" },
		{ METRIC_WEBHOOK_KEPT, "failed_num" },
		{ METRIC_WEBHOOK_DISABLED, "disabled_num" },
		{ METRIC_WEBHOOK_DROPPED, "dropped_num" },
	};
	int64_t now_ms = clock_monotonic_ms(), end_ms, pause_ms, dropped;
	PGresult *row = NULL;

	metrics_set(METRIC_WEBHOOK_SENDING, (int64_t)sendings_count(webhooks, SENDING_SENDING));
	if (now_ms < webhooks->count_ms || !postgres_up(webhooks->postgres))
		return;
	if (!keeper_state().elected) {
		webhooks->dropped = -1;
	} else if ((row = ask(webhooks, sql_query_webhook_counts, 0, NULL))) {
		dropped = column_number(row, 0, "dropped_num");
		if (webhooks->dropped >= 0 && dropped > webhooks->dropped)
			log_error("webhook_dropped", LOG_I("events", dropped - webhooks->dropped));
		webhooks->dropped = dropped;
	}
	/* Counting takes at most a fiftieth of the time, however much there is. */
	end_ms = clock_monotonic_ms();
	pause_ms = 50 * (end_ms - now_ms);
	webhooks->count_ms = end_ms + (pause_ms > COUNT_EVERY_MS ? pause_ms : COUNT_EVERY_MS);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		metrics_set(counts[i].metric, row ? column_number(row, 0, counts[i].column) : 0);
	PQclear(row);
}

static void *run(void *argument)
{
	struct webhooks *webhooks = argument;
	struct webhook_sending *sending;
	int64_t until_ms, left_ms;

	while (!webhooks->thread.stops) {
		int postgres_is_open;
		struct curl_waitfd fds[2];
		int64_t now_ms, next_ms;

		/* Connects when that is due, and reads what is announced. */
		if (postgres_up(webhooks->postgres))
			postgres_step(webhooks->postgres, clock_monotonic_ms());
		else
			postgres_open(webhooks->postgres);
		requests_step(webhooks);
		record_step(webhooks);
		lease_step(webhooks);
		count_step(webhooks);

		/* One of the workers, that of the keeper, removes what expires. */
		now_ms = clock_monotonic_ms();
		if (now_ms >= webhooks->expire_ms && keeper_state().elected &&
		    postgres_up(webhooks->postgres)) {
			webhooks->expire_ms = now_ms + EXPIRE_EVERY_MS;
			PQclear(ask(webhooks, sql_query_webhook_expire,
				    POSTGRES_ARGUMENTS(
					    postgres_number(webhooks->config->webhook_keep_s))));
		}

		/* Wait for something to do, PostgreSQL, libcurl's requests, or the stop. */
		postgres_is_open = postgres_fd(webhooks->postgres) >= 0;
		now_ms = clock_monotonic_ms();
		next_ms = now_ms + LEASE_EVERY_MS;
		fds[0] = (struct curl_waitfd){ .fd = webhooks->thread.fd,
					       .events = CURL_WAIT_POLLIN };
		fds[1] = (struct curl_waitfd){ .fd = postgres_fd(webhooks->postgres),
					       .events = CURL_WAIT_POLLIN };

		/* Libcurl knows itself when its requests go on. */
		for (size_t i = 0; i < webhooks->sendings_n; i++) {
			const struct webhook_sending *one = &webhooks->sendings[i];
			int64_t due_ms = one->state == SENDING_FREE    ? webhooks->lease_at_ms
					 : one->state == SENDING_ENDED ? one->retry_ms
								       : INT64_MAX;

			if (due_ms < next_ms)
				next_ms = due_ms;
		}
		check(curl_multi_poll(webhooks->multi, fds, postgres_is_open ? 2 : 1,
				      next_ms > now_ms ? (int)(next_ms - now_ms) : 0,
				      NULL) == CURLM_OK);
	}

	/* Wait until nothing is being sent, or for STOP_MS. */
	until_ms = clock_monotonic_ms() + STOP_MS;
	while (sending_find(webhooks, SENDING_SENDING) &&
	       (left_ms = until_ms - clock_monotonic_ms()) > 0) {
		check(curl_multi_poll(webhooks->multi, NULL, 0, (int)left_ms, NULL) == CURLM_OK);
		requests_step(webhooks);
	}
	/* Whatever is still being sent is sent again by another worker, at once. */
	while ((sending = sending_find(webhooks, SENDING_SENDING))) {
		check(curl_multi_remove_handle(webhooks->multi, post_handle(sending->post)) ==
		      CURLM_OK);
		sending_end(sending, CURLE_OK, 1);
	}
	record_step(webhooks);
	return NULL;
}

struct webhooks *webhooks_start(const struct config *config, const struct rules *rules)
{
	struct webhooks *webhooks = checked(calloc(1, sizeof(*webhooks)));

	webhooks->config = config;
	webhooks->rules = rules;
	webhooks->dropped = -1;
	webhooks->sendings_n = (size_t)config->webhook_connections;
	webhooks->sendings = calloc(webhooks->sendings_n + 1, sizeof(*webhooks->sendings));
	check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
	webhooks->multi = curl_multi_init();
	check(webhooks->sendings != NULL && webhooks->multi != NULL);
	check(curl_multi_setopt(webhooks->multi, CURLMOPT_MAXCONNECTS,
				(long)config->webhook_connections) == CURLM_OK);
	webhooks->postgres = postgres_new(&(struct postgres_options){
		.url = config->database_url,
		.application_name = "coupon-webhooks",
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.statement_timeout_ms = STATEMENT_TIMEOUT_MS,
		.lock_timeout_ms = LOCK_TIMEOUT_MS,
		.session = "LISTEN couponmq_webhook",
		.reconnects = 1,
		.lost_event = "webhook_database_lost",
		.unreachable_event = "webhook_database_unreachable",
		.refused_event = "webhook_database_refused",
		.notice_event = "webhook_database_notice",
		.notified = on_notified,
		.context = webhooks,
	});
	thread_start(&webhooks->thread, run, webhooks);
	return webhooks;
}

void webhooks_stop(struct webhooks *webhooks)
{
	thread_stop(&webhooks->thread);
	postgres_free(webhooks->postgres);
	curl_multi_cleanup(webhooks->multi);
	curl_global_cleanup();
	free(webhooks->sendings);
	free(webhooks);
}
