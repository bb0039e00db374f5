/*
 * Error handling of the blocking client: a refused command leaves the connection open, any other
 * error closes it. The server is a thread with canned replies.
 */
#include "common/redis/redis_client.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define OK "+OK\r\n" /* for SELECT */

struct server {
	int fd;
	const char *replies; /* all of them; then the connection is closed */
	char url[64];
	char got[4096]; /* the end of what the client has sent, as text */
	pthread_t thread;
};

/* Reads until the client has closed, so that no reply is lost by a reset. */
static void *server_run(void *argument)
{
	struct server *server = argument;
	int fd = accept(server->fd, NULL, NULL);
	size_t got = 0;
	ssize_t n;

	if (fd < 0)
		return NULL;
	if (write(fd, server->replies, strlen(server->replies)) < 0)
		perror("write");
	shutdown(fd, SHUT_WR);
	while ((n = read(fd, server->got + got, sizeof(server->got) - 1 - got)) > 0) {
		got += (size_t)n;
		if (got == sizeof(server->got) - 1)
			got = 0;
	}
	close(fd);
	return NULL;
}

static int failures[REDIS_REFUSED + 1];

static void on_failure(enum redis_failure failure, const char *why)
{
	assert_true(strlen(why) > 0);
	failures[failure]++;
}

static struct redis_client *client_of(struct server *server, const char *replies)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);

	memset(failures, 0, sizeof(failures));
	memset(server->got, 0, sizeof(server->got));
	server->replies = replies;
	server->fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(server->fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(server->fd, 1), 0);
	assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &size), 0);
	snprintf(server->url, sizeof(server->url), "redis://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(pthread_create(&server->thread, NULL, server_run, server), 0);
	return redis_client_new(server->url, on_failure);
}

static void server_end(struct server *server, struct redis_client *client)
{
	redis_client_free(client);
	pthread_join(server->thread, NULL);
	close(server->fd);
}

static redisReply *ping(struct redis_client *client)
{
	return redis_client_call(client, 1, (const char *[]){ "PING" });
}

static void test_a_refused_command_leaves_the_connection(void **state)
{
	struct server server;
	struct redis_client *client =
		client_of(&server, OK "-WRONGTYPE Operation against a key\r\n"
				      "-ERR couponmq: coupon:{1}: not a hash\r\n+PONG\r\n");
	redisReply *reply;

	(void)state;
	assert_int_equal(redis_client_open(client), 0);
	assert_null(ping(client));
	assert_true(redis_client_is_open(client));
	assert_string_equal(redis_client_error(client), "WRONGTYPE Operation against a key");
	assert_null(ping(client));
	reply = ping(client);
	assert_non_null(reply);
	freeReplyObject(reply);
	assert_int_equal(failures[REDIS_REFUSED], 2);
	assert_int_equal(failures[REDIS_LOST], 0);
	server_end(&server, client);
}

static void test_an_error_of_the_server_closes_it(void **state)
{
	struct server server;
	struct redis_client *client = client_of(&server,
						OK "-LOADING Redis is loading\r\n+PONG\r\n");

	(void)state;
	assert_int_equal(redis_client_open(client), 0);
	assert_null(ping(client));
	assert_false(redis_client_is_open(client));
	assert_null(ping(client)); /* nothing is sent, and the reason stays */
	assert_string_equal(redis_client_error(client), "LOADING Redis is loading");
	assert_int_equal(failures[REDIS_LOST], 1);
	server_end(&server, client);
}

static void test_a_dropped_connection_is_lost(void **state)
{
	struct server server;
	struct redis_client *client = client_of(&server, OK);

	(void)state;
	assert_int_equal(redis_client_open(client), 0);
	assert_null(ping(client));
	assert_false(redis_client_is_open(client));
	assert_int_equal(failures[REDIS_LOST], 1);
	server_end(&server, client);
}

static void test_a_refused_login_is_not_open(void **state)
{
	struct server server;
	struct redis_client *client = client_of(&server, "-NOAUTH Authentication required.\r\n");

	(void)state;
	assert_int_equal(redis_client_open(client), -1);
	assert_false(redis_client_is_open(client));
	assert_string_equal(redis_client_error(client), "SELECT: NOAUTH Authentication required.");
	server_end(&server, client);
}

static void test_a_refusal_in_a_pipeline_concerns_one_reply(void **state)
{
	struct server server;
	struct redis_client *client = client_of(&server, OK ":1\r\n-WRONGTYPE a key\r\n:3\r\n");
	const char *hlen[] = { "HLEN", "key" };

	(void)state;
	assert_int_equal(redis_client_open(client), 0);
	for (int i = 0; i < 4; i++)
		redis_client_append(client, 2, hlen);
	for (int i = 0; i < 4; i++) {
		redisReply *reply = redis_client_next(client);

		assert_int_equal(reply != NULL, i == 0 || i == 2);
		assert_int_equal(redis_client_is_open(client), i < 3);
		if (!reply)
			continue;
		assert_int_equal(reply->integer, i + 1);
		freeReplyObject(reply);
	}
	assert_int_equal(failures[REDIS_REFUSED], 1);
	assert_int_equal(failures[REDIS_LOST], 1);
	server_end(&server, client);
}

static void test_a_transaction_that_is_not_accepted_closes_it(void **state)
{
	struct server server;
	struct redis_client *client =
		client_of(&server,
			  OK OK "+QUEUED\r\n-ERR unknown command\r\n-EXECABORT discarded\r\n");
	const struct redis_words commands[] = { { { "TIME" } }, { { "TIMES" } } };

	(void)state;
	assert_int_equal(redis_client_open(client), 0);
	assert_null(redis_client_transaction(client, commands, 2));
	assert_false(redis_client_is_open(client));
	assert_string_equal(redis_client_error(client), "ERR unknown command");
	server_end(&server, client);
}

/* The server has the last word on what was loaded: after NOSCRIPT the text is sent again. */
static void test_a_prepared_script_is_sent_as_its_hash_until_it_is_gone(void **state)
{
	struct server server;
	struct redis_client *client =
		client_of(&server, OK "$3\r\nabc\r\n:1\r\n-NOSCRIPT No matching script\r\n:2\r\n");

	(void)state;
	assert_int_equal(redis_client_open(client), 0);
	redis_client_prepare(client, "return KEYS[1]");
	for (int i = 0; i < 3; i++) {
		redisReply *reply;

		redis_client_append_eval(client, "return KEYS[1]", 1, (const char *[]){ "key" }, 0,
					 NULL);
		redis_client_flush(client);
		reply = redis_client_next(client);
		assert_int_equal(reply != NULL, i != 1);
		if (reply)
			freeReplyObject(reply);
	}
	assert_true(redis_client_is_open(client));
	redis_client_close(client);
	pthread_join(server.thread, NULL);
	assert_non_null(strstr(server.got, "EVALSHA\r\n$3\r\nabc\r\n"));
	assert_non_null(strstr(strstr(server.got, "EVALSHA"), "EVAL\r\n$14\r\nreturn KEYS[1]\r\n"));
	redis_client_free(client);
	close(server.fd);
}

static void test_unreachable(void **state)
{
	struct redis_client *client = redis_client_new("redis://127.0.0.1:1", on_failure);

	(void)state;
	memset(failures, 0, sizeof(failures));
	assert_int_equal(redis_client_open(client), -1);
	assert_int_equal(failures[REDIS_UNREACHABLE], 1);
	assert_null(ping(client));
	redis_client_free(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_refused_command_leaves_the_connection),
		cmocka_unit_test(test_an_error_of_the_server_closes_it),
		cmocka_unit_test(test_a_dropped_connection_is_lost),
		cmocka_unit_test(test_a_refused_login_is_not_open),
		cmocka_unit_test(test_a_refusal_in_a_pipeline_concerns_one_reply),
		cmocka_unit_test(test_a_transaction_that_is_not_accepted_closes_it),
		cmocka_unit_test(test_a_prepared_script_is_sent_as_its_hash_until_it_is_gone),
		cmocka_unit_test(test_unreachable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
