#include "events/store.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/postgres/query.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 3000
#define STATEMENT_TIMEOUT_MS 3000
#define QUERY_TIMEOUT_MS 4000 /* the server's time-out comes first */
#define LOCK_TIMEOUT_MS 100

enum claim_column { DELIVERY, LEASE, WEBHOOK, URL, SECRETS, MESSAGE, ATTEMPTS, BODY };
enum count_column { WAITING, FAILED, OLDEST, DISABLED, DROPPED };

struct store {
	const struct config *config;
	struct postgres *postgres;
	struct backoff backoff;
	int64_t open_ms; /* not before */
	int is_notified;
};

struct store *store_new(const struct config *config)
{
	struct store *store = calloc(1, sizeof(*store));
	const struct postgres_options options = {
		.url = config->database_url,
		.application_name = "coupon-webhooks",
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.statement_timeout_ms = STATEMENT_TIMEOUT_MS,
		.lock_timeout_ms = LOCK_TIMEOUT_MS,
		.session = "LISTEN couponmq_webhook",
		.notice_event = "webhook_database_notice",
	};

	check(store != NULL);
	store->config = config;
	store->postgres = postgres_new(&options);
	return store;
}

void store_free(struct store *store)
{
	postgres_free(store->postgres);
	free(store);
}

static void drop(struct store *store, const char *event)
{
	log_warn(event, LOG_S("why", postgres_why(store->postgres)));
	postgres_drop(store->postgres, NULL);
	store->open_ms = clock_monotonic_ms() + backoff_ms(&store->backoff);
}

int store_open(struct store *store)
{
	if (postgres_up(store->postgres))
		return 0;
	if (clock_monotonic_ms() < store->open_ms)
		return -1;
	if (postgres_open(store->postgres)) {
		drop(store, "webhook_database_unreachable");
		return -1;
	}
	store->is_notified = 1;
	return 0;
}

int store_fd(const struct store *store)
{
	return postgres_fd(store->postgres);
}

int store_notified(struct store *store)
{
	int is_notified;
	PGnotify *notify;

	if (postgres_idle(store->postgres) &&
	    postgres_step(store->postgres, clock_monotonic_ms()) == POSTGRES_LOST)
		drop(store, "webhook_database_lost");
	while (postgres_idle(store->postgres) &&
	       (notify = PQnotifies(postgres_libpq(store->postgres)))) {
		store->is_notified = 1;
		PQfreemem(notify);
	}
	is_notified = store->is_notified;
	store->is_notified = 0;
	return is_notified;
}

/*
 * After an error of the server the connection is kept only if the error is one of the data or of a
 * lock. Any other may last, as a schema that is older than this program: it is tried less often.
 */
static PGresult *query(struct store *store, const char *sql, int n,
		       const struct postgres_argument *arguments)
{
	static const struct postgres_patience patience = { .timeout_ms = QUERY_TIMEOUT_MS };
	PGresult *result;

	if (!postgres_idle(store->postgres))
		return NULL;
	result = postgres_query(store->postgres, sql, n, arguments, &patience);
	if (result)
		backoff_reset(&store->backoff);
	else if (postgres_of_coupon(postgres_failure(store->postgres)))
		log_warn("webhook_database_refused", LOG_S("why", postgres_why(store->postgres)));
	else
		drop(store, "webhook_database_lost");
	return result;
}

static int64_t number_at(const PGresult *rows, int row, int column)
{
	return strtoll(PQgetvalue(rows, row, column), NULL, 10);
}

PGresult *store_claim(struct store *store, size_t most, int64_t lease_ms)
{
	const struct postgres_argument arguments[] = {
		postgres_number((int64_t)most),
		postgres_number(store->config->webhook_endpoint_connections),
		postgres_number(lease_ms),
	};

	return query(store, sql_query_webhook_claim, 3, arguments);
}

void store_claimed(const PGresult *rows, int row, struct claimed *claimed)
{
	*claimed = (struct claimed){
		.delivery = number_at(rows, row, DELIVERY),
		.lease = (int)number_at(rows, row, LEASE),
		.webhook = number_at(rows, row, WEBHOOK),
		.attempts = number_at(rows, row, ATTEMPTS),
		.request = { .url = PQgetvalue(rows, row, URL),
			     .message = PQgetvalue(rows, row, MESSAGE),
			     .secrets = PQgetvalue(rows, row, SECRETS),
			     .body = PQgetvalue(rows, row, BODY) },
	};
}

int store_finish(struct store *store, const struct finish *finish,
		 char disabled[STORE_DISABLED_SIZE])
{
	const struct config *config = store->config;
	const struct postgres_argument arguments[] = {
		postgres_number(finish->delivery),
		postgres_number(finish->lease),
		postgres_text(post_end_name(finish->end)),
		postgres_number(finish->result->status),
		postgres_text(*finish->result->why ? finish->result->why : NULL),
		postgres_number(finish->retry_ms),
		postgres_number(post_pause_ms(finish->result)),
		postgres_number(config->webhook_retry_ms),
		postgres_number(config->webhook_disable_s),
	};
	PGresult *row = query(store, sql_query_webhook_finish, 9, arguments);
	int is_own;

	if (!row)
		return -1;
	is_own = strcmp(PQgetvalue(row, 0, 0), "t") == 0;
	snprintf(disabled, STORE_DISABLED_SIZE, "%s", PQgetvalue(row, 0, 1));
	PQclear(row);
	return is_own;
}

int store_counts(struct store *store, struct store_counts *counts)
{
	PGresult *row = query(store, sql_query_webhook_counts, 0, NULL);

	if (!row)
		return -1;
	*counts = (struct store_counts){
		.waiting = number_at(row, 0, WAITING),
		.failed = number_at(row, 0, FAILED),
		.oldest_ms = number_at(row, 0, OLDEST),
		.disabled = number_at(row, 0, DISABLED),
		.dropped = number_at(row, 0, DROPPED),
	};
	PQclear(row);
	return 0;
}

int store_expire(struct store *store)
{
	const struct postgres_argument keep_s = postgres_number(store->config->webhook_keep_s);
	PGresult *result = query(store, sql_query_webhook_expire, 1, &keep_s);

	PQclear(result);
	return result ? 0 : -1;
}
