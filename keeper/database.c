#include "keeper/database.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "embed.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 3000
#define CHECK_EVERY_MS 5000
#define GRACE_MS 1000 /* the server's timeout expires before ours */
/*
 * For one lock. A worker's transaction locks a coupon for a few milliseconds. A longer lock delays
 * the other coupons by this much.
 */
#define LOCK_TIMEOUT_MS 300
/*
 * When statements of one round have waited this long for locks in vain, further ones wait only
 * briefly, so that many locked coupons do not delay the others by LOCK_TIMEOUT_MS each.
 */
#define BLOCKED_ROUND_MS 600
#define LOCK_TIMEOUT_SHORT_MS 20

struct keeper_database {
	struct postgres *postgres;
	int64_t timeout_ms;
	struct postgres_patience patience;
	int64_t changed[KEEPER_PAGE]; /* coupons named by NOTIFY */
	size_t changed_n;
	int changed_more;        /* other, unknown coupons may have changed */
	int notified;            /* since the last call of keeper_database_notified() */
	int64_t since_ms;        /* of the connection */
	int64_t used_ms;         /* the last statement */
	int64_t blocked_ms;      /* waited for locks in vain, in this round */
	int64_t lock_timeout_ms; /* of the session */
};

struct keeper_database *keeper_database_new(const char *url, int64_t timeout_ms)
{
	struct keeper_database *database = calloc(1, sizeof(*database));
	const struct postgres_options options = {
		.url = url,
		.application_name = "coupon-keeper",
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.statement_timeout_ms = timeout_ms,
		.lock_timeout_ms = LOCK_TIMEOUT_MS,
		.session = "LISTEN couponmq_terms",
		.notice_event = "keeper_database_notice",
	};

	check(database != NULL);
	database->postgres = postgres_new(&options);
	database->timeout_ms = timeout_ms;
	keeper_database_patient(database, NULL, NULL);
	return database;
}

void keeper_database_free(struct keeper_database *database)
{
	if (!database)
		return;
	postgres_free(database->postgres);
	free(database);
}

/* After the connection is lost, or the server behaves unexpectedly: a new connection is needed. */
static void drop(struct keeper_database *database, const char *event)
{
	log_warn(event, LOG_S("why", postgres_why(database->postgres)));
	postgres_drop(database->postgres, NULL);
	/* The next connection treats all terms as changed. */
	database->changed_n = 0;
	database->changed_more = 0;
	database->notified = 0;
}

void keeper_database_round(struct keeper_database *database)
{
	database->blocked_ms = 0;
}

/*
 * Sets the lock timeout that the waits of this round allow. After an error the session keeps the
 * one that it has.
 */
static void lock_timeout_set(struct keeper_database *database)
{
	int64_t wanted_ms = database->blocked_ms < BLOCKED_ROUND_MS ? LOCK_TIMEOUT_MS
								    : LOCK_TIMEOUT_SHORT_MS;
	char sql[64];
	PGresult *result;

	if (wanted_ms == database->lock_timeout_ms ||
	    PQtransactionStatus(postgres_libpq(database->postgres)) != PQTRANS_IDLE)
		return;
	snprintf(sql, sizeof(sql), "SET lock_timeout = %" PRId64, wanted_ms);
	result = postgres_query(database->postgres, sql, 0, NULL, &database->patience);
	if (result)
		database->lock_timeout_ms = wanted_ms;
	else if (!postgres_idle(database->postgres))
		drop(database, "keeper_database_lost");
	PQclear(result);
}

int keeper_database_send(struct keeper_database *database, const char *sql, int n,
			 const struct postgres_argument *arguments)
{
	if (postgres_idle(database->postgres))
		lock_timeout_set(database);
	if (!postgres_idle(database->postgres))
		return -1;
	database->used_ms = clock_monotonic_ms();
	postgres_query_send(database->postgres, sql, n, arguments, &database->patience);
	return 0;
}

PGresult *keeper_database_take(struct keeper_database *database)
{
	PGresult *result = postgres_query_take(database->postgres, &database->patience);

	if (result)
		return result;
	if (postgres_failure(database->postgres) == POSTGRES_BLOCKED)
		database->blocked_ms += clock_monotonic_ms() - database->used_ms;
	if (keeper_database_of_coupon(database))
		log_warn("keeper_database_refused", LOG_S("why", postgres_why(database->postgres)));
	else
		drop(database, "keeper_database_lost");
	return NULL;
}

int keeper_database_waits(const struct keeper_database *database, int64_t for_ms)
{
	struct pollfd answer = { .fd = postgres_fd(database->postgres), .events = POLLIN };

	return clock_monotonic_ms() - database->used_ms < database->patience.timeout_ms &&
	       answer.fd >= 0 && poll(&answer, 1, for_ms > 0 ? (int)for_ms : 0) == 0;
}

PGresult *keeper_database_query(struct keeper_database *database, const char *sql, int n,
				const struct postgres_argument *arguments)
{
	return keeper_database_send(database, sql, n, arguments) ? NULL
								 : keeper_database_take(database);
}

int keeper_database_run(struct keeper_database *database, const char *sql, int n,
			const struct postgres_argument *arguments)
{
	PGresult *result = keeper_database_query(database, sql, n, arguments);

	PQclear(result);
	return result ? 0 : -1;
}

int keeper_database_check(struct keeper_database *database)
{
	if (clock_monotonic_ms() - database->used_ms < CHECK_EVERY_MS)
		return 0;
	return keeper_database_run(database, sql_query_connection_check, 0, NULL);
}

int keeper_database_of_coupon(const struct keeper_database *database)
{
	return postgres_of_coupon(postgres_failure(database->postgres));
}

void keeper_database_patient(struct keeper_database *database, int (*waiting)(void *context),
			     void *context)
{
	database->patience = (struct postgres_patience){
		.timeout_ms = (waiting ? KEEPER_PATIENCE_MS : database->timeout_ms) + GRACE_MS,
		.waiting = waiting,
		.context = context,
	};
}

int keeper_database_open(struct keeper_database *database)
{
	if (postgres_up(database->postgres))
		return 0;
	if (postgres_open(database->postgres)) {
		drop(database, "keeper_database_unreachable");
		return -1;
	}
	database->since_ms = clock_monotonic_ms();
	database->lock_timeout_ms = LOCK_TIMEOUT_MS;
	database->changed_more = 1;
	database->notified = 1;
	return 0;
}

int64_t keeper_database_since_ms(const struct keeper_database *database)
{
	return database->since_ms;
}

int keeper_database_fd(const struct keeper_database *database)
{
	return postgres_fd(database->postgres);
}

static void changed_add(struct keeper_database *database, const char *text)
{
	int64_t coupon = strtoll(text, NULL, 10);

	database->notified = 1;
	for (size_t i = 0; i < database->changed_n; i++)
		if (database->changed[i] == coupon)
			return;
	if (database->changed_n < KEEPER_PAGE)
		database->changed[database->changed_n++] = coupon;
	else
		database->changed_more = 1;
}

static void notifications_read(struct keeper_database *database)
{
	PGnotify *notify;

	if (postgres_idle(database->postgres) &&
	    postgres_step(database->postgres, clock_monotonic_ms()) == POSTGRES_LOST)
		drop(database, "keeper_database_lost");
	while (postgres_idle(database->postgres) &&
	       (notify = PQnotifies(postgres_libpq(database->postgres)))) {
		changed_add(database, notify->extra);
		PQfreemem(notify);
	}
}

int keeper_database_notified(struct keeper_database *database)
{
	int notified;

	notifications_read(database);
	notified = database->notified;
	database->notified = 0;
	return notified;
}

size_t keeper_database_changed(struct keeper_database *database, int64_t ids[KEEPER_PAGE],
			       int *more)
{
	size_t n;

	notifications_read(database);
	n = database->changed_n;
	memcpy(ids, database->changed, n * sizeof(ids[0]));
	*more = database->changed_more;
	database->changed_n = 0;
	database->changed_more = 0;
	database->notified = 0;
	return n;
}
