/*
 * Connection strings, what failures mean, rows, and the blocking face of a session, which waits for
 * the steps that a loop would call.
 */
#include "common/postgres/session.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/postgres/tls.h"
#include "common/resolving.h"

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* One or several host names: an @ may only begin one, which is an abstract Unix socket then. */
static int hosts_are_wrong(const char *hosts)
{
	for (const char *p = hosts; *p; p++)
		if (*p == '@' && p > hosts && p[-1] != ',')
			return 1;
	return 0;
}

void postgres_url_check(const char *setting, const char *url)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	char why[512];

	if (!options)
		log_fatal(
			"%s is not a libpq connection string, postgresql://user:password@host:"
			"port/database or \"host=… password=…\": percent-encode : / @ ? and %% in "
			"a user name or password of the first form, and put single quotes around "
			"a value with spaces in the second",
			setting);
	if (strspn(postgres_option(options, "port"), "0123456789,") !=
	    strlen(postgres_option(options, "port")))
		log_fatal("%s: the port is not a number; a / in the password must be written %%2f",
			  setting);
	if (hosts_are_wrong(postgres_option(options, "host")))
		log_fatal("%s: the host contains @; an @ in the password must be written %%40",
			  setting);
	if (postgres_service_check(url, why, sizeof(why)))
		log_fatal("%s: %s", setting, why);
	PQconninfoFree(options);
}

char *postgres_url_host(const char *url)
{
	PQconninfoOption *options = checked(PQconninfoParse(url, NULL));
	const char *host = postgres_option(options, "host");
	char *name = NULL;

	if (*host && !strchr(host, ',') && !*postgres_option(options, "hostaddr") &&
	    !host_is_address(host))
		name = checked(strdup(host));
	PQconninfoFree(options);
	return name;
}

size_t postgres_url_hosts_n(const char *url)
{
	PQconninfoOption *options = checked(PQconninfoParse(url, NULL));
	const char *hosts = postgres_option(options, "host");
	size_t n = 1;

	if (!*hosts)
		hosts = postgres_option(options, "hostaddr");
	for (; *hosts; hosts++)
		n += *hosts == ',';
	PQconninfoFree(options);
	return n;
}

char *postgres_list_rotate(const char *list, size_t place)
{
	size_t n = 1, len = strlen(list);
	const char *at = list;
	char *rotated;

	for (const char *p = list; *p; p++)
		n += *p == ',';
	if (n == 1)
		return NULL;
	for (place %= n; place > 0; place--)
		at = strchr(at, ',') + 1;
	rotated = checked(calloc(1, len + 2));
	strcpy(rotated, at);
	if (at > list) {
		strcat(rotated, ",");
		strncat(rotated, list, (size_t)(at - list) - 1);
	}
	return rotated;
}

enum postgres_failure postgres_classify(const char *sqlstate)
{
	static const struct {
		const char *prefix; /* a whole SQLSTATE, or its class */
		enum postgres_failure failure;
	} table[] = {
		{ .prefix = "55P03", .failure = POSTGRES_BLOCKED },
		{ .prefix = "57014", .failure = POSTGRES_CANCELLED },
		{ .prefix = "22", .failure = POSTGRES_REFUSED },
		{ .prefix = "23", .failure = POSTGRES_REFUSED },
		{ .prefix = "40001", .failure = POSTGRES_AGAIN },
		{ .prefix = "40P01", .failure = POSTGRES_AGAIN },
	};

	if (!sqlstate || !*sqlstate)
		return POSTGRES_DOWN;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strncmp(sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0)
			return table[i].failure;
	return POSTGRES_UNFIT;
}

int postgres_of_coupon(enum postgres_failure failure)
{
	return failure >= POSTGRES_BLOCKED && failure <= POSTGRES_AGAIN;
}

const char *column_text(const PGresult *rows, int row, const char *name)
{
	int column = PQfnumber(rows, name);

	check(column >= 0);
	return PQgetvalue(rows, row, column);
}

int64_t column_number(const PGresult *rows, int row, const char *name)
{
	return strtoll(column_text(rows, row, name), NULL, 10);
}

int64_t number_at(const PGresult *rows, int row, int column)
{
	return strtoll(PQgetvalue(rows, row, column), NULL, 10);
}

#define WAITING_EVERY_MS 250

/* Waits until the socket is ready, the deadline has passed, or `waiting` is to be called again. */
static void socket_wait(struct postgres *postgres)
{
	struct pollfd pollfd = { .fd = postgres_fd(postgres),
				 .events = postgres_poll_events(postgres) };
	int64_t left_ms = postgres_deadline_ms(postgres) - clock_monotonic_ms();

	if (left_ms > 0)
		poll(&pollfd, 1, (int)(left_ms < WAITING_EVERY_MS ? left_ms : WAITING_EVERY_MS));
}

/* What happens next; the session is lost when `patience`, unless it is NULL, ends the wait. */
static enum postgres_event event_wait(struct postgres *postgres,
				      const struct postgres_patience *patience)
{
	enum postgres_event event;

	while ((event = postgres_step(postgres, clock_monotonic_ms())) == POSTGRES_NOTHING) {
		if (patience && patience->waiting && patience->waiting(patience->context)) {
			postgres_lose(postgres, "the wait was ended");
			return POSTGRES_LOST;
		}
		socket_wait(postgres);
	}
	return event;
}

int postgres_open(struct postgres *postgres)
{
	if (postgres_up(postgres))
		return 0;
	for (size_t i = 0; i < postgres_tries_n(postgres); i++)
		if (postgres_connect(postgres, clock_monotonic_ms()) == 0 &&
		    event_wait(postgres, NULL) == POSTGRES_CONNECTED)
			return 0;
	return -1;
}

PGresult *postgres_query_take(struct postgres *postgres, const struct postgres_patience *patience)
{
	if (event_wait(postgres, patience) != POSTGRES_ENDED ||
	    postgres_failure(postgres) != POSTGRES_OK)
		return NULL;
	return postgres_result_take(postgres);
}

void postgres_query_send(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience)
{
	postgres_send(postgres, sql, n, arguments,
		      patience->timeout_ms ? clock_monotonic_ms() + patience->timeout_ms
					   : INT64_MAX);
}

PGresult *postgres_query(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience)
{
	postgres_query_send(postgres, sql, n, arguments, patience);
	return postgres_query_take(postgres, patience);
}

PGresult *postgres_ask(struct postgres *postgres, const char *sql, int n,
		       const struct postgres_argument *arguments,
		       const struct postgres_patience *patience)
{
	PGresult *result;

	if (!postgres_idle(postgres))
		return NULL;
	result = postgres_query(postgres, sql, n, arguments, patience);
	if (!result)
		postgres_fail(postgres);
	return result;
}
