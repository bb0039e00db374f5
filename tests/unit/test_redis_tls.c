/*
 * TLS to Redis, blocking and on the event loop, against a server that knows a few commands; and
 * what is said where hiredis has no TLS.
 */
#include "common/clock.h"
#include "common/redis/redis_client.h"
#include "common/redis/redis_tls.h"
#include "gateway/admit/redis_link.h"
#include "tls_front.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

#define BIG_BYTES 3000000
#define WAIT_MS 20000
#define RUN_ID "0123456789012345678901234567890123456789"

static struct identity authority, other_authority;
static char authority_path[] = "/tmp/couponmq-authority-XXXXXX";
static char other_path[] = "/tmp/couponmq-authority-XXXXXX";

/* ---- a server behind the front */

static int server_fd, server_port;
static atomic_int server_stop;
static atomic_int server_connections; /* that it has accepted */
static pthread_t server_thread;

static int all_write(int fd, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n <= 0)
			return -1;
		bytes += n;
		len -= (size_t)n;
	}
	return 0;
}

/* What is read of the reply to INFO, 193 bytes. */
#define INFO                                                                                    \
	"$193\r\nx\nrun_id:" RUN_ID "\nuptime_in_seconds:9\nrole:master\nmaster_replid:" RUN_ID \
	"\nmaster_replid2:" RUN_ID "\n\r\n"

static int answer(int fd, const redisReply *command)
{
	const char *word = command->element[0]->str;
	const char *text = "+OK\r\n";
	char *big, head[32];
	int rc;

	if (strcmp(word, "INFO") == 0)
		text = INFO;
	else if (strcmp(word, "SCRIPT") == 0)
		text = "$40\r\n" RUN_ID "\r\n";
	else if (strcmp(word, "LEN") == 0)
		text = command->element[1]->len == BIG_BYTES ? ":1\r\n" : ":0\r\n";
	if (strcmp(word, "BIG") != 0)
		return all_write(fd, text, strlen(text));
	big = calloc(1, BIG_BYTES + 2);
	memcpy(big + BIG_BYTES, "\r\n", 2);
	snprintf(head, sizeof(head), "$%d\r\n", BIG_BYTES);
	rc = all_write(fd, head, strlen(head)) || all_write(fd, big, BIG_BYTES + 2);
	free(big);
	return rc;
}

static void *connection_serve(void *data)
{
	int fd = *(int *)data;
	redisReader *reader = redisReaderCreate();
	char bytes[65536];
	ssize_t n;
	void *command;

	free(data);
	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
		redisReaderFeed(reader, bytes, (size_t)n);
		while (redisReaderGetReply(reader, &command) == REDIS_OK && command) {
			if (answer(fd, command))
				n = 0;
			freeReplyObject(command);
		}
	}
	redisReaderFree(reader);
	close(fd);
	return NULL;
}

static void *server_run(void *unused)
{
	(void)unused;
	while (!server_stop) {
		struct pollfd pollfd = { .fd = server_fd, .events = POLLIN };
		int *fd;
		pthread_t thread;

		if (poll(&pollfd, 1, 20) <= 0)
			continue;
		fd = malloc(sizeof(*fd));
		*fd = accept(server_fd, NULL, NULL);
		server_connections++;
		if (pthread_create(&thread, NULL, connection_serve, fd))
			abort();
		pthread_detach(thread);
	}
	return NULL;
}

static struct event_base *events; /* of all links, which live as long as the program */

static int all_start(void **state)
{
	(void)state;
	events = event_base_new();
	signal(SIGPIPE, SIG_IGN);
	authority = identity_make(&(struct identity_terms){ .name = "authority" });
	other_authority = identity_make(&(struct identity_terms){ .name = "another" });
	identity_write(&authority, authority_path);
	identity_write(&other_authority, other_path);
	server_fd = port_listen(&server_port);
	return pthread_create(&server_thread, NULL, server_run, NULL);
}

static int all_stop(void **state)
{
	(void)state;
	server_stop = 1;
	pthread_join(server_thread, NULL);
	close(server_fd);
	unlink(authority_path);
	unlink(other_path);
	identity_free(&authority);
	identity_free(&other_authority);
	return 0;
}

static const struct identity_terms right = { .name = "redis",
					     .alternate = "DNS:localhost,IP:127.0.0.1",
					     .issuer = &authority };

static void url_of(char url[64], const char *host, int port)
{
	snprintf(url, 64, "rediss://u:p@%s:%d/1", host, port);
}

/* ---- without TLS in hiredis */

/* Runs it in a process, whose output it returns; that it ends with status 1 is expected. */
static void fatal_expect(void (*run)(void), const char *words)
{
	char text[1024] = "";
	int pipes[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		dup2(pipes[1], STDERR_FILENO);
		run();
		_exit(0);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	close(pipes[0]);
	assert_true(waitpid(pid, &status, 0) == pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	if (!strstr(text, words))
		fail_msg("\"%s\" is not in: %s", words, text);
	assert_null(strstr(text, "secret"));
}

static void url_with_tls(void)
{
	struct redis_url url;

	redis_url_need(&url, "rediss://u:secret@redis.example");
}

static void test_a_build_without_it_says_so(void **state)
{
	(void)state;
	if (redis_has_tls())
		skip();
	fatal_expect(url_with_tls, "stunnel");
}

/* ---- blocking */

static redisReply *call(struct redis_client *client, const char *word)
{
	return redis_client_call(client, 1, (const char *[]){ word });
}

static void test_blocking(void **state)
{
	struct identity identity;
	struct redis_client *client;
	struct front front;
	redisReply *reply;
	char url[64], *big;
	int64_t n;

	(void)state;
	if (!redis_has_tls())
		skip();
	identity = identity_make(&right);
	front_start(&front, &identity, server_port, 0);
	trust_authorities_set(TRUST_REDIS, authority_path);
	for (int i = 0; i < 2; i++) {
		url_of(url, i ? "127.0.0.1" : "localhost", front.port);
		client = redis_client_new(url, NULL);
		if (redis_client_open(client))
			fail_msg("refused: %s", redis_client_error(client));
		reply = call(client, "BIG");
		assert_non_null(reply);
		assert_int_equal(reply->len, BIG_BYTES);
		freeReplyObject(reply);
		big = calloc(1, BIG_BYTES + 1);
		memset(big, 'x', BIG_BYTES);
		assert_int_equal(redis_client_integer(client, 2, (const char *[]){ "LEN", big },
						      &n),
				 0);
		assert_int_equal(n, 1);
		free(big);
		redis_client_free(client);
	}
	front_stop(&front);
	identity_free(&identity);
}

static void blocking_refused(const struct identity_terms *terms, const char *host,
			     const char *authorities, const char *words)
{
	struct identity identity = identity_make(terms);
	struct redis_client *client;
	struct front front;
	char url[64];

	front_start(&front, &identity, server_port, 0);
	trust_authorities_set(TRUST_REDIS, authorities);
	url_of(url, host, front.port);
	client = redis_client_new(url, NULL);
	assert_int_equal(redis_client_open(client), -1);
	front_stop(&front);
	if (!strstr(redis_client_error(client), words))
		fail_msg("\"%s\" is not in: %s", words, redis_client_error(client));
	assert_int_equal(front.handshakes, 0);
	redis_client_free(client);
	identity_free(&identity);
}

static void test_blocking_refused(void **state)
{
	struct identity_terms terms = right;

	(void)state;
	if (!redis_has_tls())
		skip();
	blocking_refused(&right, "localhost", other_path, "unable to get local issuer");
	terms.alternate = "DNS:redis.example";
	blocking_refused(&terms, "localhost", authority_path, "hostname mismatch");
	blocking_refused(&terms, "127.0.0.1", authority_path, "IP address mismatch");
	terms = right;
	terms.from_s = -2 * DAY_S;
	terms.until_s = -DAY_S;
	blocking_refused(&terms, "localhost", authority_path, "certificate has expired");
}

struct slow {
	int fd, bytes; /* how many it sends, one each 50 ms */
	int left;      /* not sent, when the client had gone */
};

/* The beginning of a record that never becomes complete. */
static void *slow_run(void *data)
{
	static const unsigned char record[] = { 0x16, 3, 3, 0x40, 0, 2, 0, 0x30 };
	struct slow *slow = data;
	struct pollfd client = { .fd = accept(slow->fd, NULL, NULL), .events = POLLRDHUP };
	int fd = client.fd;
	char byte;

	for (slow->left = slow->bytes; slow->left > 0 && poll(&client, 1, 50) == 0; slow->left--) {
		int i = slow->bytes - slow->left;

		if (send(fd, &record[i < 8 ? i : 7], 1, MSG_NOSIGNAL) != 1)
			break;
	}
	while (recv(fd, &byte, 1, 0) > 0) /* until the client has given up */
		;
	close(fd);
	return NULL;
}

/* However a server draws out its handshake, connecting ends: bytes that come do not prolong it. */
static void test_blocking_is_bounded(void **state)
{
	static const int bytes[] = { 0, 1000 };

	(void)state;
	if (!redis_has_tls())
		skip();
	trust_authorities_set(TRUST_REDIS, authority_path);
	for (size_t i = 0; i < 2; i++) {
		struct slow slow = { .bytes = bytes[i] };
		int64_t begun_ms = clock_monotonic_ms(), took_ms;
		struct redis_client *client;
		pthread_t thread;
		char url[64];
		int port;

		slow.fd = port_listen(&port);
		assert_int_equal(pthread_create(&thread, NULL, slow_run, &slow), 0);
		url_of(url, "127.0.0.1", port);
		client = redis_client_new(url, NULL);
		assert_int_equal(redis_client_open(client), -1);
		took_ms = clock_monotonic_ms() - begun_ms;
		assert_string_equal(redis_client_error(client), "TLS: no handshake in time");
		assert_true(took_ms >= REDIS_CLIENT_TIMEOUT_MS - 100);
		redis_client_free(client);
		pthread_join(thread, NULL);
		assert_int_equal(slow.left > 0, slow.bytes > 0);
		close(slow.fd);
	}
}

/* ---- on the event loop */

static void looped_until(struct event_base *base, const struct redis_link *link, int is_ready)
{
	int64_t end_ms = clock_monotonic_ms() + WAIT_MS;

	while ((redis_link_trouble(link) == NULL) != is_ready) {
		event_base_loop(base, EVLOOP_ONCE);
		assert_true(clock_monotonic_ms() < end_ms);
	}
}

static int replies;

static void on_big(void *context, const redisReply *reply)
{
	(void)context;
	assert_non_null(reply);
	assert_true(reply->type == REDIS_REPLY_STRING ? reply->len == BIG_BYTES
						      : reply->integer == 1);
	replies++;
}

/* A link lives as long as the process: the loop is not freed either. */
static struct redis_link *link_of(struct event_base *base, int port)
{
	static char url[64];

	url_of(url, "localhost", port);
	return redis_link_new(&(struct redis_link_options){
		.base = base, .url = url, .timeout_ms = 5000, .script = "return 1" });
}

static void link_forward(struct event_base *base, struct redis_link *link)
{
	int64_t end_ms = clock_monotonic_ms() + WAIT_MS;
	char *big = calloc(1, BIG_BYTES + 1);
	const char *ask[] = { "BIG" }, *tell[] = { "LEN", big };

	memset(big, 'x', BIG_BYTES);
	replies = 0;
	for (int i = 0; i < 8; i++)
		assert_int_equal(redis_link_command(link, i % 2 ? 1 : 2, i % 2 ? ask : tell, NULL,
						    on_big, NULL),
				 0);
	redis_link_flush(link);
	while (replies < 8) {
		event_base_loop(base, EVLOOP_ONCE);
		assert_true(clock_monotonic_ms() < end_ms);
	}
	free(big);
}

/*
 * Errors of OpenSSL that other users of it left in the thread are not taken for those of the
 * connection.
 */
static void foreign_error_leave(void)
{
	ERR_raise(ERR_LIB_USER, 1);
}

static void test_looped(void **state)
{
	struct event_base *base = events;
	struct identity identity;
	struct redis_link *link;
	struct front front;

	(void)state;
	if (!redis_has_tls())
		skip();
	identity = identity_make(&right);
	front_start(&front, &identity, server_port, 0);
	trust_authorities_set(TRUST_REDIS, authority_path);
	foreign_error_leave();
	link = link_of(base, front.port);
	looped_until(base, link, 1);
	foreign_error_leave();
	link_forward(base, link);
	assert_int_equal(redis_link_connects(link), 1);
	front_stop(&front);
	looped_until(base, link, 0);
	identity_free(&identity);
}

/* What is refused is told, and the link recovers when the server has another certificate. */
static void test_looped_refused(void **state)
{
	struct event_base *base = events;
	struct identity_terms terms = right;
	struct identity identity, mended;
	int64_t end_ms = clock_monotonic_ms() + WAIT_MS;
	struct redis_link *link;
	struct front front;

	(void)state;
	if (!redis_has_tls())
		skip();
	terms.alternate = "DNS:redis.example";
	identity = identity_make(&terms);
	mended = identity_make(&right);
	front_start(&front, &identity, server_port, 0);
	trust_authorities_set(TRUST_REDIS, authority_path);
	link = link_of(base, front.port);
	while (!redis_link_trouble(link) ||
	       !strstr(redis_link_trouble(link), "hostname mismatch")) {
		event_base_loop(base, EVLOOP_ONCE);
		assert_true(clock_monotonic_ms() < end_ms);
	}
	assert_int_equal(front.handshakes, 0);
	SSL_CTX_use_certificate(front.context, mended.certificate);
	SSL_CTX_use_PrivateKey(front.context, mended.key);
	looped_until(base, link, 1);
	front_stop(&front);
	identity_free(&identity);
	identity_free(&mended);
}

/* A server that accepts and says nothing holds neither the link nor the loop. */
static void test_looped_is_bounded(void **state)
{
	struct event_base *base = events;
	int64_t end_ms = clock_monotonic_ms() + WAIT_MS;
	struct redis_link *link;
	int port, fd;

	(void)state;
	if (!redis_has_tls())
		skip();
	fd = port_listen(&port);
	link = link_of(base, port);
	while (strcmp(redis_link_trouble(link), "connecting takes too long") != 0) {
		event_base_loop(base, EVLOOP_ONCE);
		assert_non_null(redis_link_trouble(link));
		assert_true(clock_monotonic_ms() < end_ms);
	}
	close(fd);
}

int main(void)
{
	/* Before there is a thread: a process that it forks could wait for a lock of that. */
	const struct CMUnitTest before[] = {
		cmocka_unit_test(test_a_build_without_it_says_so),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocking),
		cmocka_unit_test(test_blocking_refused),
		cmocka_unit_test(test_blocking_is_bounded),
		cmocka_unit_test(test_looped),
		cmocka_unit_test(test_looped_refused),
		cmocka_unit_test(test_looped_is_bounded),
	};

	return cmocka_run_group_tests_name("redis_tls_before", before, NULL, NULL) +
	       cmocka_run_group_tests_name("redis_tls", tests, all_start, all_stop);
}
