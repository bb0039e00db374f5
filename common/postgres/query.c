/*
 * Connection strings with the files and the TLS that they lead to, what failures mean, rows, and
 * the blocking face of a session, which waits for the steps that a loop would call.
 */
#include "common/postgres/postgres_session.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/resolving.h"

#include <limits.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HOST_SIZE 256 /* a name has at most 253 bytes; a longer path begins as one, too */

const char *postgres_option(const PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return options->val ? options->val : "";
	return "";
}

/*
 * A file that exists and is not regular may block its reader. `given` "": `in_home` is read. 0, or
 * -1 with a sentence.
 */
static int file_check(const char *name, const char *given, const char *in_home, char *why,
		      size_t size)
{
	const char *home = getenv("HOME");
	char path[PATH_MAX];
	struct stat found;

	if (*given)
		snprintf(path, sizeof(path), "%s", given);
	else
		snprintf(path, sizeof(path), "%s/%s", home ? home : "", in_home);
	if (stat(path, &found) || S_ISREG(found.st_mode))
		return 0;
	snprintf(why, size,
		 "%s is \"%.250s\", which is not a regular file, and may block: allowed is one",
		 name, path);
	return -1;
}

int postgres_service_check(const char *url, char *why, size_t size)
{
	PQconninfoOption *options = checked(PQconninfoParse(url, NULL));
	const char *file = getenv("PGSERVICEFILE");
	int is_read = *postgres_option(options, "service") || getenv("PGSERVICE");

	PQconninfoFree(options);
	return is_read ? file_check("PGSERVICEFILE", file ? file : "", ".pg_service.conf", why,
				    size)
		       : 0;
}

int postgres_files_check(PGconn *libpq, char *why, size_t size)
{
	/* Each with the file that libpq looks for in ~/.postgresql without it. */
	static const char *const files[][2] = { { "sslcert", ".postgresql/postgresql.crt" },
						{ "sslkey", ".postgresql/postgresql.key" },
						{ "sslrootcert", ".postgresql/root.crt" },
						{ "sslcrl", ".postgresql/root.crl" } };
	PQconninfoOption *options = checked(PQconninfo(libpq));
	int rc = 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && rc == 0; i++)
		rc = file_check(files[i][0], postgres_option(options, files[i][0]), files[i][1],
				why, size);
	PQconninfoFree(options);
	return rc;
}

static size_t elements_n(const char *list)
{
	size_t n = 1;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

void postgres_url_check(const char *setting, const char *url)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	const char *hosts, *port;
	char why[512];

	if (!options)
		log_fatal(
			"%s is not a libpq connection string, postgresql://user:password@host:"
			"port/database or \"host=… password=…\": percent-encode : / @ ? and %% in "
			"a user name or password of the first form, and put single quotes around "
			"a value with spaces in the second",
			setting);
	port = postgres_option(options, "port");
	if (strspn(port, "0123456789,") != strlen(port))
		log_fatal("%s: the port is not a number; a / in the password must be written %%2f",
			  setting);
	/* An @ may only begin a host name, which is an abstract Unix socket then. */
	hosts = postgres_option(options, "host");
	for (const char *p = hosts; *p; p++)
		if (*p == '@' && p > hosts && p[-1] != ',')
			log_fatal("%s: the host contains @; an @ in the password must be written "
				  "%%40",
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
	size_t n = elements_n(*hosts ? hosts : postgres_option(options, "hostaddr"));

	PQconninfoFree(options);
	return n;
}

char *postgres_list_rotate(const char *list, size_t place)
{
	size_t n = elements_n(list), len = strlen(list);
	const char *at = list;
	char *rotated;

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

/* The i-th element of a list with commas; "" beyond its end. libpq takes one address per host. */
static void element_read(const char *list, size_t i, char *out, size_t size)
{
	for (; i > 0 && *list; i--) {
		list += strcspn(list, ",");
		list += *list == ',';
	}
	snprintf(out, size, "%.*s", (int)strcspn(list, ","), list);
}

int postgres_url_is_weak(const char *url, char sslmode[POSTGRES_SSLMODE_SIZE])
{
	/*
	 * Only libpq knows all its defaults: it reads the environment and the service file when it
	 * is to connect, and tells them. It refuses the last of these before it does anything.
	 */
	const char *const keywords[] = { "dbname", "target_session_attrs", NULL };
	const char *const values[] = { url, "none", NULL };
	PGconn *libpq = checked(PQconnectStartParams(keywords, values, 1));
	PQconninfoOption *options = checked(PQconninfo(libpq));
	const char *mode = postgres_option(options, "sslmode");
	const char *hosts = postgres_option(options, "host"),
		   *addresses = postgres_option(options, "hostaddr");
	size_t hosts_n = elements_n(hosts), addresses_n = elements_n(addresses);
	int is_local = 1, is_weak;
	char host[HOST_SIZE];

	/* An empty host is the socket in libpq's own folder. */
	for (size_t i = 0; i < hosts_n || i < addresses_n; i++) {
		element_read(addresses, i, host, sizeof(host));
		if (!*host)
			element_read(hosts, i, host, sizeof(host));
		is_local &= !*host || host_is_loopback(host);
	}
	snprintf(sslmode, POSTGRES_SSLMODE_SIZE, "%s", *mode ? mode : "unknown");
	/* Without a mode libpq could not read the service file, which may name any host. */
	is_weak = !*mode ||
		  (strcmp(mode, "verify-full") != 0 &&
		   strcmp(postgres_option(options, "gssencmode"), "require") != 0 && !is_local);
	PQconninfoFree(options);
	PQfinish(libpq);
	return is_weak;
}

int postgres_input_read(PGconn *libpq)
{
	const SSL *ssl;

	do {
		if (!PQconsumeInput(libpq))
			return -1;
		ssl = PQsslStruct(libpq, "OpenSSL"); /* NULL without TLS */
	} while (ssl && SSL_pending(ssl) > 0);
	return 0;
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

/*
 * What waits for a standby is released without a warning when synchronous_standby_names is cleared.
 * The postmaster tells all sessions before the checkpointer, which releases them: a session that
 * was released has read its settings again before it answers the check after its COMMIT.
 */
enum postgres_verdict postgres_commit_judge(struct postgres_commit *commit)
{
	if (!*commit->why && strcmp(commit->before, commit->after) != 0)
		snprintf(commit->why, sizeof(commit->why),
			 "the server has read its settings again meanwhile");
	if (*commit->why)
		return POSTGRES_UNSHOWN;
	return commit->is_new && !commit->is_reached ? POSTGRES_AWAITED : POSTGRES_SHOWN;
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

/*
 * Waits for the next event. The session is lost when `patience`, unless it is NULL, ends the wait.
 */
static enum postgres_event event_wait(struct postgres *postgres,
				      const struct postgres_patience *patience)
{
	enum postgres_event event;

	while ((event = postgres_step(postgres, clock_monotonic_ms())) == POSTGRES_NOTHING) {
		struct pollfd pollfd = { .fd = postgres_fd(postgres),
					 .events = postgres_poll_events(postgres) };
		int64_t left_ms;

		if (patience && patience->waiting && patience->waiting(patience->context)) {
			postgres_lose(postgres, "the wait was interrupted");
			return POSTGRES_LOST;
		}
		left_ms = postgres_deadline_ms(postgres) - clock_monotonic_ms();
		if (left_ms > WAITING_EVERY_MS)
			left_ms = WAITING_EVERY_MS;
		if (left_ms > 0)
			poll(&pollfd, 1, (int)left_ms);
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
