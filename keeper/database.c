#include "keeper/database.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 3000
#define GRACE_MS 1000 /* the server's timeout expires before ours */
/*
 * For one lock. A worker's transaction locks a coupon for a few milliseconds. A longer lock delays
 * the other coupons by this much.
 */
#define LOCK_TIMEOUT_MS 300

struct keeper_database {
	struct postgres *postgres;
	int64_t timeout_ms;
	struct postgres_patience patience;
	int64_t changed[KEEPER_PAGE]; /* coupons named by NOTIFY */
	size_t changed_n;
	int changed_more; /* other, unknown coupons may have changed */
	int notified;     /* since the last call of keeper_database_notified() */
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

PGresult *keeper_database_query(struct keeper_database *database, const char *sql, int n,
				const struct postgres_argument *arguments)
{
	PGresult *result;

	if (!postgres_idle(database->postgres))
		return NULL;
	result = postgres_query(database->postgres, sql, n, arguments, &database->patience);
	if (result)
		return result;
	if (keeper_database_of_coupon(database))
		log_warn("keeper_database_refused", LOG_S("why", postgres_why(database->postgres)));
	else
		drop(database, "keeper_database_lost");
	return NULL;
}

int keeper_database_run(struct keeper_database *database, const char *sql, int n,
			const struct postgres_argument *arguments)
{
	PGresult *result = keeper_database_query(database, sql, n, arguments);

	PQclear(result);
	return result ? 0 : -1;
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
	database->changed_more = 1;
	database->notified = 1;
	return 0;
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

static int64_t number_at(const PGresult *result, int row, int column)
{
	return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

int keeper_database_fence(struct keeper_database *database, int64_t *fence)
{
	PGresult *result = keeper_database_query(database, sql_query_keeper_fence, 0, NULL);
	int rc = result && PQntuples(result) == 1 ? 0 : -1;

	if (rc == 0)
		*fence = number_at(result, 0, 0);
	PQclear(result);
	return rc;
}

static enum coupon_status status_parse(const char *text)
{
	if (strcmp(text, "published") == 0)
		return COUPON_OPEN;
	return strcmp(text, "paused") == 0 ? COUPON_PAUSED : COUPON_CLOSED;
}

void keeper_database_row(const PGresult *result, int i, struct coupon_row *row)
{
	*row = (struct coupon_row){
		.id = number_at(result, i, 0),
		.status = status_parse(PQgetvalue(result, i, 1)),
		.version = number_at(result, i, 2),
		.total = number_at(result, i, 3),
		.issued = number_at(result, i, 4),
		.limit = number_at(result, i, 5),
		.begin_ms = number_at(result, i, 6),
		.end_ms = number_at(result, i, 7),
		.generation = number_at(result, i, 8),
		.seq_seen = number_at(result, i, 9),
		.settled = number_at(result, i, 10),
		.rebuild_asked = number_at(result, i, 11),
		.rebuild_done = number_at(result, i, 12),
		.pending = *PQgetvalue(result, i, 13) == 't',
		.is_settled = *PQgetvalue(result, i, 14) == 't',
		.late = *PQgetvalue(result, i, 15) == 't',
	};
}

static void rows_take(const PGresult *result, struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	*n = (size_t)PQntuples(result);
	check(*n <= KEEPER_PAGE);
	for (int i = 0; i < (int)*n; i++)
		keeper_database_row(result, i, &rows[i]);
}

static int page_query(struct keeper_database *database, int64_t after,
		      const struct postgres_array *ids, struct coupon_row rows[KEEPER_PAGE],
		      size_t *n)
{
	const struct postgres_argument arguments[] = { postgres_number(after),
						       postgres_number(KEEPER_PAGE),
						       ids ? postgres_array(ids)
							   : postgres_text(NULL) };
	PGresult *result = keeper_database_query(database, sql_query_coupon_page, 3, arguments);

	if (!result)
		return -1;
	rows_take(result, rows, n);
	PQclear(result);
	return 0;
}

int keeper_database_page(struct keeper_database *database, int64_t after,
			 struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	return page_query(database, after, NULL, rows, n);
}

int keeper_database_coupons(struct keeper_database *database, const int64_t *ids, size_t ids_n,
			    struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	struct postgres_array array;
	int rc;

	check(ids_n <= KEEPER_PAGE);
	postgres_array_init(&array, POSTGRES_INT8);
	for (size_t i = 0; i < ids_n; i++)
		postgres_array_add_number(&array, ids[i]);
	rc = page_query(database, 0, &array, rows, n);
	postgres_array_fini(&array);
	return rc;
}

/*
 * Runs a statement that returns whether this keeper is still elected, and whether the change was
 * made.
 */
static int fenced_query(struct keeper_database *database, const char *sql, int n,
			const struct postgres_argument *arguments, int *done)
{
	PGresult *result = keeper_database_query(database, sql, n, arguments);
	int elected;

	if (!result)
		return -1;
	elected = *PQgetvalue(result, 0, 0) == 't';
	*done = *PQgetvalue(result, 0, 1) == 't';
	PQclear(result);
	return elected ? 0 : 1;
}

int keeper_database_close(struct keeper_database *database, int64_t coupon, int64_t version,
			  int64_t fence, int *closed)
{
	const struct postgres_argument arguments[] = { postgres_number(coupon),
						       postgres_number(version),
						       postgres_number(fence) };

	return fenced_query(database, sql_query_coupon_ended_set, 3, arguments, closed);
}

int keeper_database_settled(struct keeper_database *database, int64_t coupon, int64_t fence,
			    int64_t generation, int64_t seq,
			    const struct postgres_array *generations,
			    const struct postgres_array *seqs, int *settled)
{
	const struct postgres_argument arguments[] = {
		postgres_number(coupon), postgres_number(fence),      postgres_number(generation),
		postgres_number(seq),    postgres_array(generations), postgres_array(seqs)
	};

	return fenced_query(database, sql_query_coupon_settled_set, 6, arguments, settled);
}

int keeper_database_expires(struct keeper_database *database, int64_t coupon, int64_t fence,
			    int64_t keep_ms)
{
	const struct postgres_argument arguments[] = { postgres_number(coupon),
						       postgres_number(fence),
						       postgres_number(keep_ms) };
	int recorded;

	return fenced_query(database, sql_query_coupon_expires_set, 3, arguments, &recorded);
}

int keeper_database_expiring(struct keeper_database *database, struct keeper_expiring *after,
			     struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	const struct postgres_argument arguments[] = { postgres_text(after->at),
						       postgres_number(after->coupon),
						       postgres_number(KEEPER_PAGE) };
	PGresult *result = keeper_database_query(database, sql_query_coupon_expiring_page, 3,
						 arguments);

	if (!result)
		return -1;
	*n = (size_t)PQntuples(result);
	check(*n <= KEEPER_PAGE);
	for (int i = 0; i < (int)*n; i++)
		rows[i] = (struct coupon_row){ .id = number_at(result, i, 0),
					       .status = COUPON_CLOSED,
					       .generation = number_at(result, i, 1),
					       .seq_seen = number_at(result, i, 2),
					       .is_settled = 1 };
	if (*n > 0) {
		after->coupon = rows[*n - 1].id;
		snprintf(after->at, sizeof(after->at), "%s", PQgetvalue(result, (int)*n - 1, 3));
	}
	PQclear(result);
	return 0;
}

int keeper_database_generation(struct keeper_database *database, const struct coupon_row *row,
			       int64_t redis_generation, int64_t fence, int64_t *generation)
{
	const struct postgres_argument arguments[] = { postgres_number(row->id),
						       postgres_number(row->generation),
						       postgres_number(redis_generation),
						       postgres_number(fence) };
	PGresult *result = keeper_database_query(database, sql_query_coupon_generation_open, 4,
						 arguments);

	if (!result)
		return -1;
	*generation = PQntuples(result) == 1 ? number_at(result, 0, 0) : 0;
	PQclear(result);
	return 0;
}
