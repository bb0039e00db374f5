#include "common/postgres/tls.h"

#include "common/check.h"
#include "common/resolving.h"

#include <limits.h>
#include <openssl/ssl.h>
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

/* A file that exists and is not regular may block its reader. `given` "": the one in HOME. */
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

/*
 * The i-th element of a list with commas; "" beyond its end. libpq takes one address for each host.
 */
static void element_read(const char *list, size_t i, char *out, size_t size)
{
	for (; i > 0 && *list; i--) {
		list += strcspn(list, ",");
		list += *list == ',';
	}
	snprintf(out, size, "%.*s", (int)strcspn(list, ","), list);
}

static size_t elements_n(const char *list)
{
	size_t n = 1;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

/* An empty host is the socket in libpq's own folder. */
static int hosts_are_local(const char *hosts, const char *addresses)
{
	size_t hosts_n = elements_n(hosts), addresses_n = elements_n(addresses);
	char host[HOST_SIZE];

	for (size_t i = 0; i < hosts_n || i < addresses_n; i++) {
		element_read(addresses, i, host, sizeof(host));
		if (!*host)
			element_read(hosts, i, host, sizeof(host));
		if (*host && !host_is_loopback(host))
			return 0;
	}
	return 1;
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
	int is_weak;

	snprintf(sslmode, POSTGRES_SSLMODE_SIZE, "%s", *mode ? mode : "unknown");
	/* Without a mode libpq could not read the service file, which may name any host. */
	is_weak = !*mode || (strcmp(mode, "verify-full") != 0 &&
			     strcmp(postgres_option(options, "gssencmode"), "require") != 0 &&
			     !hosts_are_local(postgres_option(options, "host"),
					      postgres_option(options, "hostaddr")));
	PQconninfoFree(options);
	PQfinish(libpq);
	return is_weak;
}
