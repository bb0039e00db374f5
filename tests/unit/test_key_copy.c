/*
 * Pages of API keys on their way to Redis: how far each says that Redis has them, and what became
 * of it. The server is a thread with canned replies.
 */
#include "common/api_keys.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define OWN "00000000-0000-4000-8000-000000000001"
#define OK "*2\r\n$2\r\nok\r\n:9\r\n"

static struct {
	int fd;
	const char *reply; /* to the command after SELECT; then the connection is closed */
	char got[65536];   /* what the client has sent */
	pthread_t thread;
	struct redis_client *client;
} server;

static int is_said(int fd, const char *reply)
{
	return write(fd, reply, strlen(reply)) == (ssize_t)strlen(reply);
}

/* A reply that comes before its command would keep the client from sending it. */
static void *server_run(void *argument)
{
	int fd = accept(server.fd, NULL, NULL), is_asked = 0;
	size_t got = 0;
	ssize_t n;

	(void)argument;
	if (fd < 0 || !is_said(fd, "+OK\r\n"))
		return NULL;
	while ((n = read(fd, server.got + got, sizeof(server.got) - 1 - got)) > 0) {
		got += (size_t)n;
		if (is_asked || !strstr(server.got, KEYS_KEY))
			continue;
		is_asked = is_said(fd, server.reply);
		shutdown(fd, SHUT_WR);
	}
	close(fd);
	return NULL;
}

static struct redis_client *server_begin(const char *reply)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	char url[64];

	memset(&server, 0, sizeof(server));
	server.reply = reply;
	server.fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(server.fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(server.fd, 1), 0);
	assert_int_equal(getsockname(server.fd, (struct sockaddr *)&address, &size), 0);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(pthread_create(&server.thread, NULL, server_run, NULL), 0);
	server.client = redis_client_new(url, NULL);
	assert_int_equal(redis_client_open(server.client), 0);
	return server.client;
}

static void server_end(void)
{
	redis_client_free(server.client);
	pthread_join(server.thread, NULL);
	close(server.fd);
}

static void value_set(PGresult *rows, int row, int column, const char *value)
{
	assert_true(PQsetvalue(rows, row, column, (char *)(uintptr_t)value, (int)strlen(value)));
}

/* So many rows, whose versions end with `last`. */
static PGresult *rows_make(int n, int64_t last)
{
	char version_name[] = "version", record_name[] = "record";
	PGresAttDesc columns[] = { { .name = version_name }, { .name = record_name } };
	PGresult *rows = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	char text[32];

	assert_true(PQsetResultAttrs(rows, 2, columns));
	for (int row = 0; row < n; row++) {
		snprintf(text, sizeof(text), "%lld", (long long)(last - n + 1 + row));
		value_set(rows, row, 0, text);
		snprintf(text, sizeof(text), "{record %d}", row);
		value_set(rows, row, 1, text);
	}
	return rows;
}

/* Writes a page, and checks what the script was told, and where the next one begins. */
static void assert_page(int n, int64_t last, int64_t from, int64_t to, int64_t told)
{
	struct redis_client *client = server_begin(OK);
	PGresult *rows = rows_make(n, last);
	char from_text[32], to_text[32], tail[256];

	snprintf(from_text, sizeof(from_text), "%lld", (long long)from);
	snprintf(to_text, sizeof(to_text), "%lld", (long long)told);
	assert_int_equal(key_copy_write(client, OWN, rows, &from, to), KEY_COPIED);
	assert_int_equal(from, told);
	server_end();
	snprintf(tail, sizeof(tail),
		 "$13\r\ncouponmq:keys\r\n$16\r\ncouponmq:changes\r\n$36\r\n" OWN
		 "\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n%s",
		 strlen(from_text), from_text, strlen(to_text), to_text,
		 n ? "$10\r\n{record 0}\r\n" : "");
	assert_non_null(strstr(server.got, tail));
	PQclear(rows);
}

static void test_how_far_a_page_goes(void **state)
{
	(void)state;
	/* The last page: all that there was when the number was read. */
	assert_page(3, 8, 5, 9, 9);
	/* And what was committed since. */
	assert_page(3, 12, 5, 9, 12);
	/* A full page says nothing of what comes after it. */
	assert_page(KEY_COPY_PAGE, 150, 5, 900, 150);
	/* Numbers that no key has. */
	assert_page(0, 0, 5, 9, 9);
}

static void test_what_became_of_it(void **state)
{
	static const struct {
		const char *reply;
		enum key_copied copied;
		int is_open;
	} cases[] = {
		{ "$7\r\nforeign\r\n", KEY_COPY_FOREIGN, 1 },
		{ "$9\r\nunadopted\r\n", KEY_COPY_UNADOPTED, 1 },
		{ "-ERR couponmq: couponmq:keys: not a hash (keys.lua)\r\n", KEY_COPY_FAILED, 1 },
		{ "-LOADING Redis is loading\r\n", KEY_COPY_FAILED, 0 },
		{ "", KEY_COPY_FAILED, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		PGresult *rows = rows_make(1, 6);
		struct redis_client *client;
		int64_t from = 5;

		client = server_begin(cases[i].reply);
		assert_int_equal(key_copy_write(client, OWN, rows, &from, 6), cases[i].copied);
		assert_int_equal(redis_client_is_open(client), cases[i].is_open);
		server_end();
		PQclear(rows);
	}
}

static void test_the_version_that_redis_has(void **state)
{
	static const struct {
		const char *reply;
		int64_t version;
		int rc;
	} cases[] = {
		{ "$2\r\n17\r\n", 17, 0 },
		{ "$16\r\n9007199254740991\r\n", 9007199254740991, 0 },
		{ "$-1\r\n", 0, 0 },
		{ "$0\r\n\r\n", 0, 0 },
		{ "$2\r\n-1\r\n", 0, 0 },
		{ "$3\r\n1.5\r\n", 0, 0 },
		{ "$16\r\n9007199254740992\r\n", 0, 0 },
		{ "-WRONGTYPE Operation against a key\r\n", 0, -1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct redis_client *client;
		int64_t version = -7;

		client = server_begin(cases[i].reply);
		assert_int_equal(key_copy_version(client, &version), cases[i].rc);
		assert_int_equal(version, cases[i].version);
		server_end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_how_far_a_page_goes),
		cmocka_unit_test(test_what_became_of_it),
		cmocka_unit_test(test_the_version_that_redis_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
