#include "common/redis/redis_tls.h"

#include "common/check.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifdef HIREDIS_SSL

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>

int redis_has_tls(void)
{
	return 1;
}

/* hiredis' own functions of a connection with TLS, and the same with ours around two of them. */
static pthread_mutex_t wrapped_lock = PTHREAD_MUTEX_INITIALIZER;
static const redisContextFuncs *plain; /* NULL: neither is set yet */
static redisContextFuncs wrapped;

/* What OpenSSL found wrong, instead of the text of an errno that says nothing about it. */
static ssize_t call_end(redisContext *connection, ssize_t n)
{
	int number = errno;

	if (n < 0 && connection->err == REDIS_ERR_IO && (*trust_why() || number == 0)) {
		snprintf(connection->errstr, sizeof(connection->errstr), "%s",
			 *trust_why() ? trust_why() : "TLS: disconnected");
		number = 0;
	}
	errno = number;
	return n;
}

/*
 * It takes at least a record (16 KiB) at once, so nothing that has arrived stays in OpenSSL, where
 * the event loop would not see it. hiredis tells failures apart by errno and by OpenSSL's errors of
 * the thread, so both are cleared before each call.
 */
static ssize_t tls_read(redisContext *connection, char *buffer, size_t size)
{
	trust_begin();
	errno = 0;
	return call_end(connection, plain->read(connection, buffer, size));
}

static ssize_t tls_write(redisContext *connection)
{
	trust_begin();
	errno = 0;
	return call_end(connection, plain->write(connection));
}

/* The connection owns what this returns; NULL with a sentence. */
static SSL *begin(redisContext *connection, const char *host, char error[TRUST_ERROR_SIZE])
{
	SSL_CTX *context = checked(SSL_CTX_new(TLS_client_method()));
	struct in6_addr address;
	SSL *ssl = NULL;

	if (trust_context_set(context, TRUST_REDIS, host, error) == 0)
		ssl = checked(SSL_new(context));
	SSL_CTX_free(context);
	if (!ssl)
		return NULL;
	/* Only names may be told. */
	if (inet_pton(AF_INET, host, &address) != 1 && inet_pton(AF_INET6, host, &address) != 1)
		SSL_set_tlsext_host_name(ssl, host);
	trust_begin();
	if (redisInitiateSSL(connection, ssl) != REDIS_OK) {
		snprintf(error, TRUST_ERROR_SIZE, "%s",
			 *trust_why() ? trust_why() : connection->errstr);
		SSL_free(ssl);
		return NULL;
	}

	pthread_mutex_lock(&wrapped_lock);
	if (!plain) {
		plain = connection->funcs;
		wrapped = *plain;
		wrapped.read = tls_read;
		wrapped.write = tls_write;
	}
	pthread_mutex_unlock(&wrapped_lock);
	connection->funcs = &wrapped;
	return ssl;
}

int redis_tls_begin(redisContext *connection, const char *host, char error[TRUST_ERROR_SIZE])
{
	return begin(connection, host, error) ? 0 : -1;
}

/*
 * Does the handshake on a connection that blocks. A time-out of the socket would bound each wait,
 * but not all of them together: so the connection does not block meanwhile. 0, or -1 with a
 * sentence.
 */
static int handshake_run(redisContext *connection, const char *host, int timeout_ms,
			 char error[TRUST_ERROR_SIZE])
{
	int64_t deadline_ms = clock_monotonic_ms() + timeout_ms, left_ms;
	int flags = fcntl(connection->fd, F_GETFL), done = 0, rc, wanted;
	struct pollfd pollfd = { .fd = connection->fd };
	SSL *ssl;

	fcntl(connection->fd, F_SETFL, flags | O_NONBLOCK);
	connection->flags &= ~REDIS_BLOCK;
	ssl = begin(connection, host, error);
	while (ssl && !(done = SSL_is_init_finished(ssl))) {
		trust_begin();
		rc = SSL_do_handshake(ssl);
		if (rc == 1)
			continue;
		wanted = SSL_get_error(ssl, rc);
		if (wanted != SSL_ERROR_WANT_READ && wanted != SSL_ERROR_WANT_WRITE) {
			snprintf(error, TRUST_ERROR_SIZE, "%s",
				 *trust_why() ? trust_why() : "TLS: disconnected");
			break;
		}
		pollfd.events = wanted == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
		left_ms = deadline_ms - clock_monotonic_ms();
		if (left_ms <= 0 || (poll(&pollfd, 1, (int)left_ms) <= 0 && errno != EINTR)) {
			snprintf(error, TRUST_ERROR_SIZE, "TLS: no handshake in time");
			break;
		}
	}
	connection->flags |= REDIS_BLOCK;
	fcntl(connection->fd, F_SETFL, flags);
	return done ? 0 : -1;
}

#elif __has_include(<hiredis/hiredis_ssl.h>)
#error "hiredis has TLS here, but pkg-config, which the Makefile asks for it, is not installed"
#else

int redis_has_tls(void)
{
	return 0;
}

int redis_tls_begin(redisContext *connection, const char *host, char error[TRUST_ERROR_SIZE])
{
	(void)connection, (void)host, (void)error;
	check(redis_has_tls());
	return -1;
}

static int handshake_run(redisContext *connection, const char *host, int timeout_ms,
			 char error[TRUST_ERROR_SIZE])
{
	(void)timeout_ms;
	return redis_tls_begin(connection, host, error);
}

#endif

redisContext *redis_connect(const char *host, int port, int is_tls, int connect_ms, int timeout_ms,
			    char error[TRUST_ERROR_SIZE])
{
	const struct timeval connect = { .tv_sec = connect_ms / 1000,
					 .tv_usec = connect_ms % 1000 * 1000 };
	const struct timeval timeout = { .tv_sec = timeout_ms / 1000,
					 .tv_usec = timeout_ms % 1000 * 1000 };
	redisContext *connection = checked(redisConnectWithTimeout(host, port, connect));

	if (connection->err) {
		snprintf(error, TRUST_ERROR_SIZE, "%s", connection->errstr);
		goto fail;
	}
	redisSetTimeout(connection, timeout);
	fcntl(connection->fd, F_SETFD, FD_CLOEXEC);
	if (is_tls && handshake_run(connection, host, timeout_ms, error))
		goto fail;
	return connection;
fail:
	redisFree(connection);
	return NULL;
}
