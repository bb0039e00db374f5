/*
 * The thread that tells Redis which batches are settled or dead: its commands, and what it does
 * when Redis refuses one or is away. The server is a thread with canned replies.
 */
#include "worker/metrics.h"
#include "worker/outboxes.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SHA "0123456789abcdef0123456789abcdef01234567"
#define OK "+OK\r\n" /* for SELECT */
#define LOADED "$40\r\n" SHA "\r\n"
#define CONNECTIONS_MAX 2
#define RECEIVED_SIZE 65536
#define SCRIPT_LEN 500 /* no other word is so long */
#define WAIT_MS 10000
#define GATHER_MS 200

struct server {
	int fd;
	/* of each connection, one for each command; it is closed when a command has none */
	const char *replies[CONNECTIONS_MAX];
	char received[CONNECTIONS_MAX][RECEIVED_SIZE]; /* the commands, each in a line */
	char url[64];
	pthread_t thread;
};

static atomic_int commands_n; /* received by the server */

/* The number behind the first byte, and what follows its line; NULL: that has not come. */
static const char *number_read(const char *at, long *number)
{
	const char *end = strstr(at, "\r\n");

	*number = strtol(at + 1, NULL, 10);
	return end ? end + 2 : NULL;
}

/* Appends the command to the text. Returns what follows it; NULL: it is not whole. */
static const char *command_read(const char *at, char *text)
{
	size_t begin = strlen(text), len = begin;
	long words, size;

	at = number_read(at, &words);
	len += (size_t)sprintf(text + len, "\n");
	for (; at && words > 0; words--) {
		at = number_read(at, &size);
		if (!at || strlen(at) < (size_t)size + 2) {
			text[begin] = '\0';
			return NULL;
		}
		if (size > SCRIPT_LEN)
			len += (size_t)sprintf(text + len, " <script>");
		else
			len += (size_t)sprintf(text + len, " %.*s", (int)size, at);
		at += size + 2;
	}
	return at;
}

/* Sends the next reply. Returns the others. */
static const char *reply_send(int fd, const char *replies)
{
	size_t len = strcspn(replies, "\n") + (*replies != '\0');

	if (*replies == '$')
		len += strcspn(replies + len, "\n") + 1;
	if (len == 0)
		shutdown(fd, SHUT_WR);
	else if (write(fd, replies, len) < 0)
		perror("write");
	return replies + len;
}

static void connection_serve(struct server *server, int i)
{
	static char bytes[RECEIVED_SIZE];
	const char *replies = server->replies[i], *at = bytes, *next;
	int fd = accept(server->fd, NULL, NULL);
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, bytes + len, RECEIVED_SIZE - 1 - len)) > 0) {
		len += (size_t)n;
		bytes[len] = '\0';
		while (*at && (next = command_read(at, server->received[i]))) {
			at = next;
			replies = reply_send(fd, replies);
			commands_n++;
		}
	}
	close(fd);
}

static void *server_run(void *argument)
{
	struct server *server = argument;

	for (int i = 0; i < CONNECTIONS_MAX && server->replies[i]; i++)
		connection_serve(server, i);
	return NULL;
}

static int64_t removed_before, forgotten_before;

#define INSTALLATION "00000000-0000-4000-8000-000000000001"

static struct outboxes *outboxes_of(struct server *server, const char *first, const char *second)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	struct outboxes *outboxes;

	memset(server, 0, sizeof(*server));
	server->replies[0] = first;
	server->replies[1] = second;
	server->fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(server->fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(server->fd, 1), 0);
	assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &size), 0);
	snprintf(server->url, sizeof(server->url), "redis://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(pthread_create(&server->thread, NULL, server_run, server), 0);
	commands_n = 0;
	removed_before = metrics_get(METRIC_OUTBOX_REMOVED);
	forgotten_before = metrics_get(METRIC_OUTBOX_FORGOTTEN);
	outboxes = outboxes_start(server->url, GATHER_MS);
	outboxes_origin(outboxes, INSTALLATION, &(struct postgres_server){ "", 0 });
	return outboxes;
}

static void end(struct server *server, struct outboxes *outboxes)
{
	outboxes_stop(outboxes);
	pthread_join(server->thread, NULL);
	close(server->fd);
}

static int64_t removed(void)
{
	return metrics_get(METRIC_OUTBOX_REMOVED) - removed_before;
}

static int64_t forgotten(void)
{
	return metrics_get(METRIC_OUTBOX_FORGOTTEN) - forgotten_before;
}

static int64_t commands(void)
{
	return commands_n;
}

static void wait_for(int64_t (*count)(void), int64_t wanted)
{
	for (int i = 0; i < WAIT_MS && count() < wanted; i++)
		usleep(1000);
	assert_int_equal(count(), wanted);
}

static struct ulid batch_of(uint8_t number)
{
	return (struct ulid){ .bytes = { 1, [15] = number } };
}

static void settled(struct outboxes *outboxes, int64_t coupon, uint8_t number)
{
	struct ulid batch = batch_of(number);

	outboxes_settled(outboxes, coupon, &batch, 1000 + number);
}

static void dead(struct outboxes *outboxes, int64_t coupon, uint8_t number)
{
	struct ulid batch = batch_of(number);

	outboxes_dead(outboxes, coupon, &batch);
}

/* The commands after SELECT, each in a line. */
static const char *commands_of(const char *received)
{
	assert_true(strncmp(received, "\n SELECT 0", 10) == 0);
	return received + 10;
}

#define BATCH "010000000000000000000000"
#define LOAD "\n SCRIPT LOAD <script>"
#define COPY "\n EVAL <script> 1 couponmq:changes " INSTALLATION "   newer "
#define SETTLE(coupon)                                                      \
	"\n EVALSHA " SHA " 3 coupon:{" #coupon "}:outbox coupon:{" #coupon \
	"}:settled coupon:{" #coupon "}:rejected "

static void test_those_of_a_coupon_go_in_one_command(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED ":2\r\n:1\r\n", NULL);

	(void)state;
	settled(outboxes, 7, 1);
	settled(outboxes, 7, 2);
	settled(outboxes, 8, 3);
	settled(outboxes, 7, 4);
	outboxes_send(outboxes);
	wait_for(removed, 3);
	end(&server, outboxes);
	assert_int_equal(forgotten(), 0);
	assert_string_equal(commands_of(server.received[0]), LOAD SETTLE(7) BATCH
			    "01:1001 " BATCH "02:1002 " BATCH "04:1004" SETTLE(8) BATCH "03:1003");
}

/* As many of one command as its arguments allow. */
static void test_rejected_ones_go_with_their_batch(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED ":2\r\n", NULL);
	struct user_id user = user_id_of_number(42);

	(void)state;
	settled(outboxes, 7, 1);
	outboxes_rejected(outboxes, 0, 1, "slot_taken", &user);
	outboxes_rejected(outboxes, 255, 32767, "lost", &user);
	settled(outboxes, 7, 2);
	outboxes_send(outboxes);
	wait_for(removed, 2);
	end(&server, outboxes);
	assert_string_equal(commands_of(server.received[0]),
			    LOAD SETTLE(7) BATCH "01:1001 " BATCH "01:0:1:slot_taken:42 " BATCH
						 "01:255:32767:lost:42 " BATCH "02:1002");
}

static void test_many_rejected_ones_go_in_several_commands(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED ":4\r\n:1\r\n", NULL);
	struct user_id user = user_id_of_number(42);

	(void)state;
	for (uint8_t number = 1; number <= 5; number++) {
		settled(outboxes, 7, number);
		for (size_t i = 0; i < 256; i++)
			outboxes_rejected(outboxes, i, 1, "lost", &user);
	}
	outboxes_send(outboxes);
	wait_for(removed, 5);
	end(&server, outboxes);
	assert_int_equal(forgotten(), 0);
}

static void test_the_number_is_copied_before(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED "+ok\r\n:1\r\n" LOADED ":1\r\n",
						NULL);

	(void)state;
	assert_int_equal(outboxes_changed(outboxes, "9:100"), 0);
	outboxes_send(outboxes); /* waits for a batch */
	assert_int_equal(outboxes_changed(outboxes, "9:99"), 0);
	assert_int_equal(outboxes_changed(outboxes, "63:9007199254740991"), 0);
	settled(outboxes, 7, 1);
	outboxes_send(outboxes);
	wait_for(removed, 1);
	settled(outboxes, 7, 2);
	outboxes_send(outboxes);
	wait_for(removed, 2);
	end(&server, outboxes);
	assert_string_equal(commands_of(server.received[0]),
			    LOAD COPY "9 100 63 9007199254740991" SETTLE(7) BATCH
			    "01:1001" LOAD SETTLE(7) BATCH "02:1002");
}

static void test_what_is_no_number(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, NULL, NULL);
	static const char *const bad[] = {
		"",      "9",   "9:",   ":9",   "128:1",
		"9:1:1", "9:x", "-1:1", "9:-1", "000000000000000000000009:1"
	};

	(void)state;
	shutdown(server.fd, SHUT_RDWR);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(outboxes_changed(outboxes, bad[i]), -1);
	end(&server, outboxes);
}

/* The copy is refused, then lost, then made. */
static void test_without_the_copy_nothing_is_removed(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED "-ERR not a hash\r\n" LOADED,
						OK LOADED "+ok\r\n:1\r\n");

	(void)state;
	assert_int_equal(outboxes_changed(outboxes, "9:100"), 0);
	settled(outboxes, 7, 1);
	outboxes_send(outboxes);
	wait_for(removed, 1);
	end(&server, outboxes);
	assert_int_equal(forgotten(), 0);
	assert_string_equal(commands_of(server.received[0]), LOAD COPY "9 100" LOAD COPY "9 100");
	assert_string_equal(commands_of(server.received[1]),
			    LOAD COPY "9 100" SETTLE(7) BATCH "01:1001");
}

/* It lost its data, and then was adopted by those who knew its id, or by another installation. */
static void test_a_redis_that_is_not_its_own(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server,
						OK LOADED "+unadopted\r\n" LOADED
							  "+foreign\r\n" LOADED "+ok\r\n:1\r\n",
						NULL);

	(void)state;
	assert_int_equal(outboxes_changed(outboxes, "9:100"), 0);
	settled(outboxes, 7, 1);
	outboxes_send(outboxes);
	wait_for(removed, 1);
	end(&server, outboxes);
	assert_string_equal(commands_of(server.received[0]), LOAD COPY
			    "9 100" LOAD COPY "9 100" LOAD COPY "9 100" SETTLE(7) BATCH "01:1001");
}

#define SERVER(number) (&(struct postgres_server){ "70", number })
#define COPY_OF(server) "\n EVAL <script> 1 couponmq:changes " INSTALLATION "  70:" server " newer"

/* Without a number, too: Redis says whether it follows the server. */
static void test_an_old_server_removes_nothing(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server,
						OK LOADED "+old\r\n" LOADED "+ok\r\n:1\r\n", NULL);

	(void)state;
	outboxes_origin(outboxes, INSTALLATION, SERVER(1));
	settled(outboxes, 7, 1);
	outboxes_send(outboxes);
	wait_for(removed, 1);
	end(&server, outboxes);
	assert_string_equal(commands_of(server.received[0]),
			    LOAD COPY_OF("1") LOAD COPY_OF("1") SETTLE(7) BATCH "01:1001");
}

static void test_what_another_server_settled_is_forgotten(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server,
						OK LOADED "+old\r\n" LOADED "+ok\r\n:1\r\n", NULL);

	(void)state;
	outboxes_origin(outboxes, INSTALLATION, SERVER(1));
	assert_int_equal(outboxes_changed(outboxes, "9:100"), 0);
	settled(outboxes, 7, 1);
	outboxes_send(outboxes);
	wait_for(commands, 3); /* it is in the hands of the thread */
	settled(outboxes, 7, 2);
	outboxes_send(outboxes);
	outboxes_origin(outboxes, INSTALLATION, SERVER(1)); /* of a new session */
	assert_int_equal(forgotten(), 0);
	outboxes_origin(outboxes, INSTALLATION, SERVER(2));
	assert_int_equal(outboxes_changed(outboxes, "9:8"), 0);
	settled(outboxes, 7, 3);
	outboxes_send(outboxes);
	wait_for(removed, 1);
	assert_int_equal(forgotten(), 2);
	end(&server, outboxes);
	assert_string_equal(commands_of(server.received[0]),
			    LOAD COPY_OF("1") " 9 100" LOAD COPY_OF("2") " 9 8" SETTLE(7) BATCH
			    "03:1003");
}

/* After a lost connection it may be another Redis. */
static void test_what_is_sent_again_has_its_number(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED "+ok\r\n",
						OK LOADED "+ok\r\n:1\r\n");

	(void)state;
	assert_int_equal(outboxes_changed(outboxes, "9:100"), 0);
	settled(outboxes, 7, 1);
	outboxes_send(outboxes);
	wait_for(removed, 1);
	end(&server, outboxes);
	assert_string_equal(commands_of(server.received[1]),
			    LOAD COPY "9 100" SETTLE(7) BATCH "01:1001");
}

static void test_nothing_is_sent_before_it_is_handed_over(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK ":1\r\n:1\r\n" LOADED ":1\r\n", NULL);

	(void)state;
	settled(outboxes, 7, 1);
	dead(outboxes, 7, 2);
	wait_for(commands, 3);
	assert_int_equal(removed(), 0);
	end(&server, outboxes); /* which sends it */
	assert_int_equal(removed(), 1);
}

static void test_a_dead_one_is_marked(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK ":1\r\n:1\r\n", NULL);

	(void)state;
	dead(outboxes, 7, 1);
	end(&server, outboxes);
	assert_int_equal(removed(), 0);
	assert_int_equal(forgotten(), 0);
	assert_string_equal(commands_of(server.received[0]), "\n SADD coupon:{7}:dead " BATCH "01"
							     "\n EXPIRE coupon:{7}:dead 2592000");
}

static void test_what_was_lost_is_sent_again(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED ":1\r\n", OK LOADED ":1\r\n");

	(void)state;
	settled(outboxes, 7, 1);
	settled(outboxes, 8, 2);
	outboxes_send(outboxes);
	wait_for(removed, 2);
	end(&server, outboxes);
	assert_int_equal(forgotten(), 0);
	assert_string_equal(commands_of(server.received[1]), LOAD SETTLE(8) BATCH "02:1002");
}

/* Out of memory Redis removes, and does not add. */
static void test_a_refused_addition_is_retried(void **state)
{
	struct server server;
	struct outboxes *outboxes =
		outboxes_of(&server,
			    OK "-OOM command not allowed\r\n:0\r\n:1\r\n:1\r\n" LOADED ":1\r\n",
			    NULL);

	(void)state;
	dead(outboxes, 7, 1);
	wait_for(commands, 5);
	settled(outboxes, 7, 2);
	end(&server, outboxes);
	assert_int_equal(removed(), 1);
	assert_int_equal(forgotten(), 0);
	assert_string_equal(commands_of(server.received[0]),
			    "\n SADD coupon:{7}:dead " BATCH "01"
			    "\n EXPIRE coupon:{7}:dead 2592000"
			    "\n SADD coupon:{7}:dead " BATCH "01"
			    "\n EXPIRE coupon:{7}:dead 2592000" LOAD SETTLE(7) BATCH "02:1002");
}

static void test_a_refused_removal_is_forgotten(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, OK LOADED "-ERR a string\r\n:1\r\n", NULL);

	(void)state;
	settled(outboxes, 7, 1);
	settled(outboxes, 8, 2);
	outboxes_send(outboxes);
	wait_for(removed, 1);
	end(&server, outboxes);
	assert_int_equal(forgotten(), 1);
}

/* Nothing answers at that address. */
static void test_what_does_not_fit_is_forgotten(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, NULL, NULL);

	(void)state;
	shutdown(server.fd, SHUT_RDWR);
	for (int i = 0; i < OUTBOXES_HELD_MAX; i++)
		settled(outboxes, 7, (uint8_t)i);
	outboxes_send(outboxes);
	assert_int_equal(forgotten(), 0);
	settled(outboxes, 7, 1);
	settled(outboxes, 7, 2);
	outboxes_send(outboxes);
	assert_int_equal(forgotten(), 2);
	dead(outboxes, 7, 1);
	assert_int_equal(forgotten(), 2);
	end(&server, outboxes);
	assert_int_equal(forgotten(), OUTBOXES_HELD_MAX + 3);
	assert_int_equal(removed(), 0);
}

/* A rejected receive needs as much room as a batch. */
static void test_rejected_ones_are_bounded(void **state)
{
	struct server server;
	struct outboxes *outboxes = outboxes_of(&server, NULL, NULL);
	struct user_id user = user_id_of_number(42);

	(void)state;
	shutdown(server.fd, SHUT_RDWR);
	for (size_t i = 0; i < OUTBOXES_HELD_MAX; i++)
		if (i % 64 == 0)
			settled(outboxes, 7, (uint8_t)(i / 64));
		else
			outboxes_rejected(outboxes, i % 64, 1, "lost", &user);
	outboxes_send(outboxes);
	assert_int_equal(forgotten(), 0);
	settled(outboxes, 7, 2);
	outboxes_rejected(outboxes, 0, 1, "lost", &user);
	outboxes_send(outboxes);
	assert_int_equal(forgotten(), 1);
	end(&server, outboxes);
	assert_int_equal(forgotten(), 1 + OUTBOXES_HELD_MAX / 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_those_of_a_coupon_go_in_one_command),
		cmocka_unit_test(test_rejected_ones_go_with_their_batch),
		cmocka_unit_test(test_many_rejected_ones_go_in_several_commands),
		cmocka_unit_test(test_the_number_is_copied_before),
		cmocka_unit_test(test_what_is_no_number),
		cmocka_unit_test(test_without_the_copy_nothing_is_removed),
		cmocka_unit_test(test_a_redis_that_is_not_its_own),
		cmocka_unit_test(test_an_old_server_removes_nothing),
		cmocka_unit_test(test_what_another_server_settled_is_forgotten),
		cmocka_unit_test(test_what_is_sent_again_has_its_number),
		cmocka_unit_test(test_nothing_is_sent_before_it_is_handed_over),
		cmocka_unit_test(test_a_dead_one_is_marked),
		cmocka_unit_test(test_what_was_lost_is_sent_again),
		cmocka_unit_test(test_a_refused_addition_is_retried),
		cmocka_unit_test(test_a_refused_removal_is_forgotten),
		cmocka_unit_test(test_what_does_not_fit_is_forgotten),
		cmocka_unit_test(test_rejected_ones_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
