#include "keeper/database.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "embed.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_MS 1000 /* the server gives up first */
#define NUMBER_SIZE 24
#define WAITING_EVERY_MS 250

struct keeper_database {
	const char *url;
	int64_t timeout_ms;
	PGconn *connection;
	int64_t changed[KEEPER_PAGE]; /* coupons that were named by NOTIFY */
	size_t changed_n;
	int changed_more;              /* others too, or nobody knows */
	int notified;                  /* since keeper_database_notified() was asked */
	int (*waiting)(void *context); /* see keeper_database_patient() */
	void *waiting_context;
};

struct keeper_database *keeper_database_new(const char *url, int64_t timeout_ms)
{
	struct keeper_database *database = calloc(1, sizeof(*database));

	check(database != NULL);
	database->url = url;
	database->timeout_ms = timeout_ms;
	return database;
}

static void drop(struct keeper_database *database)
{
	PQfinish(database->connection);
	database->connection = NULL;
	/* The next connection begins with "nobody knows": until then there is a pause to keep. */
	database->changed_n = 0;
	database->changed_more = 0;
	database->notified = 0;
}

void keeper_database_free(struct keeper_database *database)
{
	if (!database)
		return;
	drop(database);
	free(database);
}

static void failed(struct keeper_database *database, const char *event, const char *why)
{
	char line[256];

	snprintf(line, sizeof(line), "%s", why ? why : PQerrorMessage(database->connection));
	line[strcspn(line, "\n")] = '\0';
	log_warn(event, LOG_S("why", line));
	drop(database);
}

/*
 * Waits for the answer, but not for ever as PQexec() does when the server hangs. NULL: too late, or
 * no connection.
 */
static PGresult *answer_wait(struct keeper_database *database)
{
	int64_t patience_ms = database->waiting ? KEEPER_PATIENCE_MS : database->timeout_ms;
	int64_t deadline_ms = clock_monotonic_ms() + patience_ms + GRACE_MS;
	PGresult *last = NULL, *result;

	for (;;) {
		struct pollfd pollfd = { .fd = PQsocket(database->connection), .events = POLLIN };
		int64_t left_ms = deadline_ms - clock_monotonic_ms();

		if (!PQconsumeInput(database->connection))
			break;
		while (!PQisBusy(database->connection)) {
			result = PQgetResult(database->connection);
			if (!result)
				return last;
			PQclear(last);
			last = result;
		}
		if (left_ms <= 0 ||
		    (database->waiting && database->waiting(database->waiting_context)))
			break;
		poll(&pollfd, 1, (int)(left_ms < WAITING_EVERY_MS ? left_ms : WAITING_EVERY_MS));
	}
	PQclear(last);
	return NULL;
}

PGresult *keeper_database_ask(struct keeper_database *database, const char *sql, int n,
			      const char *const *values)
{
	PGresult *result;

	if (!database->connection)
		return NULL;
	if (!PQsendQueryParams(database->connection, sql, n, NULL, values, NULL, NULL, 0)) {
		failed(database, "keeper_database_lost", NULL);
		return NULL;
	}
	result = answer_wait(database);
	if (result && (PQresultStatus(result) == PGRES_TUPLES_OK ||
		       PQresultStatus(result) == PGRES_COMMAND_OK))
		return result;
	failed(database, "keeper_database_lost",
	       result ? PQresultErrorMessage(result) : "no answer in time");
	PQclear(result);
	return NULL;
}

static int tell(struct keeper_database *database, const char *sql)
{
	PGresult *result = keeper_database_ask(database, sql, 0, NULL);

	PQclear(result);
	return result ? 0 : -1;
}

/* libpq would write them to standard error, between our lines. */
static void notice(void *unused, const char *message)
{
	char line[256];

	(void)unused;
	snprintf(line, sizeof(line), "%s", message);
	line[strcspn(line, "\n")] = '\0';
	log_warn("keeper_database_notice", LOG_S("why", line));
}

void keeper_database_patient(struct keeper_database *database, int (*waiting)(void *context),
			     void *context)
{
	database->waiting = waiting;
	database->waiting_context = context;
}

int keeper_database_open(struct keeper_database *database)
{
	const char *const keywords[] = { "dbname", "application_name", "connect_timeout",
					 "tcp_user_timeout", NULL };
	const char *const values[] = { database->url, "coupon-keeper", "3", "10000", NULL };
	char limits[128];

	if (database->connection)
		return 0;
	database->connection = PQconnectdbParams(keywords, values, 1);
	check(database->connection != NULL);
	PQsetNoticeProcessor(database->connection, notice, NULL);
	if (PQstatus(database->connection) != CONNECTION_OK) {
		failed(database, "keeper_database_unreachable", NULL);
		return -1;
	}
	snprintf(limits, sizeof(limits), "SET statement_timeout = %" PRId64, database->timeout_ms);
	database->changed_more = 1;
	database->notified = 1;
	if (tell(database, limits))
		return -1;
	return tell(database, "LISTEN couponmq_terms");
}

int keeper_database_fd(const struct keeper_database *database)
{
	return database->connection ? PQsocket(database->connection) : -1;
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

	if (database->connection && !PQconsumeInput(database->connection))
		failed(database, "keeper_database_lost", NULL);
	while (database->connection && (notify = PQnotifies(database->connection))) {
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
	PGresult *result = keeper_database_ask(database, sql_query_keeper_fence, 0, NULL);
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

static int page_ask(struct keeper_database *database, int64_t after, const char *ids,
		    struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	char after_text[NUMBER_SIZE], most_text[NUMBER_SIZE];
	const char *const values[] = { after_text, most_text, ids };
	PGresult *result;

	snprintf(after_text, sizeof(after_text), "%" PRId64, after);
	snprintf(most_text, sizeof(most_text), "%d", KEEPER_PAGE);
	result = keeper_database_ask(database, sql_query_coupon_page, 3, values);
	if (!result)
		return -1;
	rows_take(result, rows, n);
	PQclear(result);
	return 0;
}

int keeper_database_page(struct keeper_database *database, int64_t after,
			 struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	return page_ask(database, after, NULL, rows, n);
}

int keeper_database_coupons(struct keeper_database *database, const int64_t *ids, size_t ids_n,
			    struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	char text[KEEPER_PAGE * NUMBER_SIZE + 2];
	int len = 0;

	check(ids_n <= KEEPER_PAGE);
	for (size_t i = 0; i < ids_n; i++)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "%c%" PRId64, i ? ',' : '{',
				ids[i]);
	snprintf(text + len, sizeof(text) - (size_t)len, ids_n ? "}" : "{}");
	return page_ask(database, 0, text, rows, n);
}

/*
 * A statement that tells whether this keeper is still the elected one, and whether it did what it
 * was for.
 */
static int fenced_ask(struct keeper_database *database, const char *sql, int n,
		      const char *const *values, int *done)
{
	PGresult *result = keeper_database_ask(database, sql, n, values);
	int elected;

	if (!result)
		return -1;
	elected = *PQgetvalue(result, 0, 0) == 't';
	*done = *PQgetvalue(result, 0, 1) == 't';
	PQclear(result);
	return elected ? 0 : 1;
}

static const char *number(int64_t value, char out[NUMBER_SIZE])
{
	snprintf(out, NUMBER_SIZE, "%" PRId64, value);
	return out;
}

int keeper_database_close(struct keeper_database *database, int64_t coupon, int64_t version,
			  int64_t fence, int *closed)
{
	char text[3][NUMBER_SIZE];
	const char *const values[] = { number(coupon, text[0]), number(version, text[1]),
				       number(fence, text[2]) };

	return fenced_ask(database, sql_query_coupon_ended_set, 3, values, closed);
}

int keeper_database_settled(struct keeper_database *database, int64_t coupon, int64_t fence,
			    int64_t generation, int64_t seq, const char *generations,
			    const char *seqs, int *settled)
{
	char text[4][NUMBER_SIZE];
	const char *const values[] = { number(coupon, text[0]),
				       number(fence, text[1]),
				       number(generation, text[2]),
				       number(seq, text[3]),
				       generations,
				       seqs };

	return fenced_ask(database, sql_query_coupon_settled_set, 6, values, settled);
}

int keeper_database_expires(struct keeper_database *database, int64_t coupon, int64_t fence,
			    int64_t keep_ms)
{
	char text[3][NUMBER_SIZE];
	const char *const values[] = { number(coupon, text[0]), number(fence, text[1]),
				       number(keep_ms, text[2]) };
	int recorded;

	return fenced_ask(database, sql_query_coupon_expires_set, 3, values, &recorded);
}

int keeper_database_expiring(struct keeper_database *database, struct keeper_expiring *after,
			     struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	char text[2][NUMBER_SIZE];
	const char *const values[] = { after->at, number(after->coupon, text[0]),
				       number(KEEPER_PAGE, text[1]) };
	PGresult *result = keeper_database_ask(database, sql_query_coupon_expiring_page, 3, values);

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
	char texts[4][NUMBER_SIZE];
	const int64_t numbers[4] = { row->id, row->generation, redis_generation, fence };
	const char *const values[] = { texts[0], texts[1], texts[2], texts[3] };
	PGresult *result;

	for (int i = 0; i < 4; i++)
		snprintf(texts[i], NUMBER_SIZE, "%" PRId64, numbers[i]);
	result = keeper_database_ask(database, sql_query_coupon_generation_open, 4, values);
	if (!result)
		return -1;
	*generation = PQntuples(result) == 1 ? number_at(result, 0, 0) : 0;
	PQclear(result);
	return 0;
}
