/* TLS to PostgreSQL: rows in records that libpq takes in part, and servers that are refused. */
#include "common/clock.h"
#include "common/postgres/postgres_session.h"
#include "tls_identity.h"

#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#define RECORD_BYTES 16384 /* the longest of TLS; as long as libpq's first buffer */
#define ROW_BYTES 500
#define ROW_HEAD 11 /* type, length, one column, its length */
#define TIMEOUT_MS 10000

static struct identity authority;
static char authority_path[] = "/tmp/couponmq-authority-XXXXXX";

static int all_start(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	setenv("PGSYSCONFDIR", "/nonexistent", 1);
	authority = identity_make(&(struct identity_terms){ .name = "authority" });
	identity_write(&authority, authority_path);
	return 0;
}

static int all_stop(void **state)
{
	(void)state;
	unlink(authority_path);
	identity_free(&authority);
	return 0;
}

/* ---- a server for one connection */

struct server {
	int fd, port;
	atomic_int client_fd; /* of the session, which runs in this process */
	SSL_CTX *context;
	pthread_t thread;
};

/* Appends a message: its type, its length, and `len` bytes, from `data` or spaces. */
static char *message_put(char *at, char type, const void *data, size_t len)
{
	uint32_t size = htonl((uint32_t)len + 4);

	*at = type;
	memcpy(at + 1, &size, 4);
	if (data)
		memcpy(at + 5, data, len);
	else
		memset(at + 5, ' ', len);
	return at + 5 + len;
}

/* One column, of type text. */
static char *columns_put(char *at)
{
	static const char column[] = "\0\1"
				     "c\0"
				     "\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0";

	return message_put(at, 'T', column, sizeof(column));
}

/* A row of this many bytes in all: spaces. */
static char *row_put(char *at, size_t bytes)
{
	uint32_t size = htonl((uint32_t)(bytes - ROW_HEAD));
	char *end = message_put(at, 'D', NULL, bytes - 5);

	memcpy(at + 5, "\0\1", 2);
	memcpy(at + 7, &size, 4);
	return end;
}

static char *end_put(char *at, const char *tag)
{
	at = message_put(at, 'C', tag, strlen(tag) + 1);
	return message_put(at, 'Z', "I", 1);
}

/* A whole message of the client; with `typed` 0 the first one, which has no type. */
static int message_read(SSL *ssl, int typed)
{
	char head[5], bytes[4096];
	uint32_t size;

	if (SSL_read(ssl, head, 4 + typed) != 4 + typed)
		return -1;
	memcpy(&size, head + typed, 4);
	size = ntohl(size) - 4;
	return size > sizeof(bytes) || (size > 0 && SSL_read(ssl, bytes, (int)size) != (int)size)
		       ? -1
		       : 0;
}

static void all_write(SSL *ssl, const char *from, const char *to)
{
	if (SSL_write(ssl, from, (int)(to - from)) != to - from)
		abort();
}

/* Until the client has read all that was sent. */
static void all_read_wait(const struct server *server, int fd)
{
	int unsent = 1, unread = 1;

	while (ioctl(fd, SIOCOUTQ, &unsent) == 0 &&
	       ioctl(server->client_fd, FIONREAD, &unread) == 0 && unsent + unread > 0)
		poll(NULL, 0, 1);
}

/*
 * Rows in two records. The first ends within a row, so that libpq has that much less space for the
 * second, which is as long as its buffer.
 */
static void rows_write(const struct server *server, SSL *ssl)
{
	char bytes[4 * RECORD_BYTES], *at, *cut;

	at = columns_put(bytes);
	at = row_put(at, ROW_BYTES);
	cut = at - 1;
	all_write(ssl, bytes, cut);
	all_read_wait(server, SSL_get_fd(ssl));
	while (at - cut + 2 * ROW_BYTES < RECORD_BYTES)
		at = row_put(at, ROW_BYTES);
	at = row_put(at, (size_t)(RECORD_BYTES - (at - cut)) - 20);
	at = end_put(at, "SELECT 1");
	if (at - cut != RECORD_BYTES)
		abort();
	all_write(ssl, cut, at);
}

static void *server_run(void *data)
{
	struct server *server = data;
	int fd = accept(server->fd, NULL, NULL);
	SSL *ssl = SSL_new(server->context);
	char request[8], bytes[128], *at;

	SSL_set_fd(ssl, fd);
	if (recv(fd, request, 8, MSG_WAITALL) == 8 && send(fd, "S", 1, MSG_NOSIGNAL) == 1 &&
	    SSL_accept(ssl) == 1 && message_read(ssl, 0) == 0) {
		at = message_put(bytes, 'R', "\0\0\0", 4);
		at = message_put(at, 'Z', "I", 1);
		all_write(ssl, bytes, at);
		if (message_read(ssl, 1) == 0) { /* the settings of the session, and its pid: 0 */
			at = row_put(columns_put(bytes), ROW_HEAD + 1);
			at = end_put(at, "SELECT 1");
			all_write(ssl, bytes, at);
		}
		if (message_read(ssl, 1) == 0)
			rows_write(server, ssl);
		while (SSL_read(ssl, bytes, sizeof(bytes)) > 0)
			;
	}
	SSL_free(ssl);
	close(fd);
	return NULL;
}

static void server_start(struct server *server, const struct identity *identity)
{
	server->context = SSL_CTX_new(TLS_server_method());
	SSL_CTX_use_certificate(server->context, identity->certificate);
	SSL_CTX_use_PrivateKey(server->context, identity->key);
	server->fd = port_listen(&server->port);
	assert_int_equal(pthread_create(&server->thread, NULL, server_run, server), 0);
}

static void server_stop(struct server *server)
{
	pthread_join(server->thread, NULL);
	close(server->fd);
	SSL_CTX_free(server->context);
}

static struct postgres *session_new(const struct server *server, char url[256])
{
	snprintf(url, 256,
		 "host=localhost hostaddr=127.0.0.1 port=%d user=u dbname=d sslmode=verify-full "
		 "sslrootcert=%s gssencmode=disable",
		 server->port, authority_path);
	return postgres_new(&(struct postgres_options){
		.url = url, .application_name = "test", .connect_timeout_ms = TIMEOUT_MS });
}

/* As an event loop does: it steps when the socket is ready, which is before the deadline. */
static enum postgres_event stepped_until_event(struct postgres *postgres)
{
	enum postgres_event event;

	while ((event = postgres_step(postgres, clock_monotonic_ms())) == POSTGRES_NOTHING) {
		struct pollfd pollfd = { .fd = postgres_fd(postgres),
					 .events = postgres_poll_events(postgres) };
		int64_t left_ms = postgres_deadline_ms(postgres) - clock_monotonic_ms();

		if (poll(&pollfd, 1, left_ms > 0 ? (int)left_ms : 0) == 0)
			fail_msg("nothing came before the deadline");
	}
	return event;
}

static void test_all_of_a_record_is_taken(void **state)
{
	struct identity identity = identity_make(&(struct identity_terms){
		.name = "db", .alternate = "DNS:localhost", .issuer = &authority });
	struct postgres *postgres;
	struct server server;
	char url[256];

	(void)state;
	server_start(&server, &identity);
	postgres = session_new(&server, url);
	assert_int_equal(postgres_connect(postgres, clock_monotonic_ms()), 0);
	if (stepped_until_event(postgres) != POSTGRES_CONNECTED)
		fail_msg("refused: %s", postgres_why(postgres));
	server.client_fd = postgres_fd(postgres);
	postgres_send(postgres, "SELECT c", 0, NULL, clock_monotonic_ms() + TIMEOUT_MS);
	if (stepped_until_event(postgres) != POSTGRES_ENDED)
		fail_msg("no rows: %s", postgres_why(postgres));
	assert_int_equal(PQntuples(postgres_result(postgres)), 1 + RECORD_BYTES / ROW_BYTES);
	postgres_free(postgres);
	server_stop(&server);
	identity_free(&identity);
}

static void refused_expect(const struct identity_terms *terms, const char *words)
{
	struct identity identity = identity_make(terms);
	struct postgres *postgres;
	struct server server;
	char url[256];

	server_start(&server, &identity);
	postgres = session_new(&server, url);
	assert_int_equal(postgres_open(postgres), -1);
	if (!strstr(postgres_why(postgres), words))
		fail_msg("\"%s\" is not in: %s", words, postgres_why(postgres));
	postgres_free(postgres);
	server_stop(&server);
	identity_free(&identity);
}

/* By libpq itself; that its sentence reaches the log whole. */
static void test_refused(void **state)
{
	(void)state;
	refused_expect(&(struct identity_terms){ .name = "db",
						 .alternate = "DNS:db.example",
						 .issuer = &authority },
		       "does not match host name \"localhost\"");
	refused_expect(&(struct identity_terms){ .name = "db", .alternate = "DNS:localhost" },
		       "certificate verify failed");
	refused_expect(&(struct identity_terms){ .name = "db",
						 .alternate = "DNS:localhost",
						 .issuer = &authority,
						 .from_s = -2 * DAY_S,
						 .until_s = -DAY_S },
		       "certificate verify failed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_of_a_record_is_taken),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("postgres_tls", tests, all_start, all_stop);
}
