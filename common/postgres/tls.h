/*
 * TLS of connections to PostgreSQL. libpq makes it, and verifies, by its own parameters; this is
 * what is left to its users.
 */
#pragma once

#include <libpq-fe.h>
#include <stddef.h>

/*
 * Takes in all input that has arrived. Of a record of TLS libpq takes only as much as it has space
 * for; the rest is in OpenSSL then, where poll() does not see it. 0, or -1 when the connection is
 * lost.
 */
int postgres_input_read(PGconn *libpq);

/*
 * Whether libpq can read the files of TLS without waiting: those that are there are regular files.
 * 0, or -1 with a sentence. After libpq has begun to connect, and before its first step.
 */
int postgres_files_check(PGconn *libpq, char *why, size_t size);
/*
 * Whether libpq can read its service file without waiting, if the URL or PGSERVICE names a service.
 * 0, or -1 with a sentence. Before libpq begins to connect, which reads that file.
 */
int postgres_service_check(const char *url, char *why, size_t size);

/* The value of one keyword of a connection string; "" when it is absent. */
const char *postgres_option(const PQconninfoOption *options, const char *keyword);

#define POSTGRES_SSLMODE_SIZE 16

/*
 * Whether a string that was checked leads to another machine without what proves that it is the
 * right one: sslmode=verify-full, or gssencmode=require. PGSSLMODE, PGHOST, a service file and so
 * on count as they do for libpq. Then `sslmode` is what is used instead. Nothing is connected.
 */
int postgres_url_is_weak(const char *url, char sslmode[POSTGRES_SSLMODE_SIZE]);
