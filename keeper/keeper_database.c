#include "keeper/keeper_database.h"

#include "common/check.h"
#include "common/clock.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define APPLICATION_NAME "coupon-keeper"
#define CONNECT_TIMEOUT_MS 3000
#define TIMEOUT_MS 3000 /* for one statement */
#define GRACE_MS 1000   /* the server's timeout expires before ours */
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
	struct postgres_patience patience;
	int64_t changed[KEEPER_PAGE]; /* coupons named by NOTIFY */
	size_t changed_n;
	int changed_more;   /* other, unknown coupons may have changed */
	int notified;       /* since the last call of keeper_database_notified() */
	int64_t used_ms;    /* the last statement */
	int64_t blocked_ms; /* waited for locks in vain, in this round */
};

/* In a new session `payload` is NULL, and all terms are treated as changed. */
static void on_notified(void *context, const char *payload)
{
	struct keeper_database *database = context;
	int64_t coupon;

	database->notified = 1;
	if (!payload) {
		database->changed_n = 0;
		database->changed_more = 1;
		return;
	}
	coupon = strtoll(payload, NULL, 10);
	for (size_t i = 0; i < database->changed_n; i++)
		if (database->changed[i] == coupon)
			return;
	if (database->changed_n < KEEPER_PAGE)
		database->changed[database->changed_n++] = coupon;
	else
		database->changed_more = 1;
}

struct keeper_database *keeper_database_new(const char *url, int is_synchronous)
{
	struct keeper_database *database = calloc(1, sizeof(*database));
	const struct postgres_options options = {
		.url = url,
		.application_name = APPLICATION_NAME,
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.statement_timeout_ms = TIMEOUT_MS,
		.lock_timeout_ms = LOCK_TIMEOUT_MS,
		.session = "LISTEN couponmq_terms",
		.is_synchronous = is_synchronous,
		.lost_event = "keeper_database_lost",
		.unreachable_event = "keeper_database_unreachable",
		.refused_event = "keeper_database_refused",
		.notice_event = "keeper_database_notice",
		.notified = on_notified,
		.context = database,
	};

	check(database != NULL);
	database->postgres = postgres_new(&options);
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

void keeper_database_round(struct keeper_database *database)
{
	database->blocked_ms = 0;
}

int keeper_database_send(struct keeper_database *database, const char *sql, int n,
			 const struct postgres_argument *arguments)
{
	int64_t lock_timeout_ms = database->blocked_ms < BLOCKED_ROUND_MS ? LOCK_TIMEOUT_MS
									  : LOCK_TIMEOUT_SHORT_MS;
	PGresult *set;

	/* Set the lock timeout that the waits of this round allow; in a transaction it stays. */
	if (postgres_idle(database->postgres) &&
	    PQtransactionStatus(postgres_libpq(database->postgres)) == PQTRANS_IDLE &&
	    postgres_set(database->postgres, lock_timeout_ms, APPLICATION_NAME,
			 clock_monotonic_ms() + database->patience.timeout_ms)) {
		set = postgres_query_take(database->postgres, &database->patience);
		if (!set)
			postgres_lose(database->postgres, NULL);
		PQclear(set);
	}
	if (!postgres_idle(database->postgres))
		return -1;
	database->used_ms = clock_monotonic_ms();
	postgres_query_send(database->postgres, sql, n, arguments, &database->patience);
	return 0;
}

PGresult *keeper_database_take(struct keeper_database *database)
{
	PGresult *result = postgres_query_take(database->postgres, &database->patience);

	if (postgres_failure(database->postgres) == POSTGRES_BLOCKED)
		database->blocked_ms += clock_monotonic_ms() - database->used_ms;
	if (!result)
		postgres_fail(database->postgres);
	return result;
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

PGresult *keeper_database_coupons(struct keeper_database *database, const char *sql,
				  const int64_t *ids, size_t n)
{
	struct postgres_array array = { .type = POSTGRES_INT8 };
	PGresult *result;

	for (size_t i = 0; i < n; i++)
		postgres_array_add_number(&array, ids[i]);
	result = keeper_database_query(database, sql, POSTGRES_ARGUMENTS(postgres_array(&array)));
	postgres_array_fini(&array);
	return result;
}

int keeper_database_run(struct keeper_database *database, const char *sql, int n,
			const struct postgres_argument *arguments)
{
	PGresult *result = keeper_database_query(database, sql, n, arguments);

	PQclear(result);
	return result ? 0 : -1;
}

void keeper_database_patient(struct keeper_database *database, int (*waiting)(void *context),
			     void *context)
{
	database->patience = (struct postgres_patience){
		.timeout_ms = (waiting ? KEEPER_PATIENCE_MS : TIMEOUT_MS) + GRACE_MS,
		.waiting = waiting,
		.context = context,
	};
}

struct postgres *keeper_database_session(const struct keeper_database *database)
{
	return database->postgres;
}

/* Notifications of a session that is lost are forgotten: a new one treats all terms as changed. */
static void notifications_read(struct keeper_database *database)
{
	if (postgres_idle(database->postgres))
		postgres_step(database->postgres, clock_monotonic_ms());
	if (postgres_up(database->postgres))
		return;
	database->changed_n = 0;
	database->changed_more = 0;
	database->notified = 0;
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
