/* Bytes under TLS, over a real socket: nothing is lost, and nothing waits unseen. */
#include "common/serve/stream.h"
#include "common/serve/tls.h"
#include "tests/unit/tls_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#define BIG 3000000

static struct tls_rig rig;
static struct tls *tls;
static SSL_CTX *context;

/* A client whose bytes the test moves by itself, and the stream of the server. */
struct pair {
	struct stream stream;
	SSL *client;
	int fd; /* the client's end */
};

static int setup(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN); /* as in the gateway */
	rig_init(&rig);
	rig_pair_write(&rig, "server", -DAY_S, DAY_S);
	tls = tls_new(&rig.config);
	context = SSL_CTX_new(TLS_client_method());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tls_free(tls);
	SSL_CTX_free(context);
	rig_fini(&rig);
	return 0;
}

/* Sends what the client has written, in pieces of so many bytes; returns how many were sent. */
static size_t client_flush(struct pair *pair, size_t most)
{
	char bytes[65536];
	int n = BIO_read(SSL_get_wbio(pair->client), bytes,
			 (int)(most < sizeof(bytes) ? most : sizeof(bytes)));

	if (n <= 0)
		return 0;
	assert_int_equal(send(pair->fd, bytes, (size_t)n, 0), n);
	return (size_t)n;
}

static void client_receive(struct pair *pair)
{
	char bytes[65536];
	ssize_t n;

	while ((n = recv(pair->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		BIO_write(SSL_get_rbio(pair->client), bytes, (int)n);
}

static void client_write(struct pair *pair, const char *text)
{
	int len = (int)strlen(text);

	assert_int_equal(SSL_write(pair->client, text, len), len);
}

static void pair_open(struct pair *pair)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	stream_init(&pair->stream, fds[0]);
	stream_secure(&pair->stream, tls_session_new(tls, "couponmq"));
	pair->fd = fds[1];
	pair->client = SSL_new(context);
	SSL_set_bio(pair->client, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	SSL_set_connect_state(pair->client);
}

/* Shakes hands, each flight in pieces; what the client has to say at once goes with its last. */
static void pair_shake(struct pair *pair, size_t piece, const char *early)
{
	int done = 0, rc;

	for (int i = 0; i < 5000 && !done; i++) {
		rc = SSL_do_handshake(pair->client);
		if (rc == 1 && early) {
			client_write(pair, early);
			early = NULL;
		}
		client_flush(pair, piece);
		done = stream_handshake(&pair->stream);
		assert_true(done >= 0);
		client_receive(pair);
	}
	assert_int_equal(done, 1);
}

static void pair_close(struct pair *pair)
{
	stream_close(&pair->stream);
	SSL_free(pair->client);
	close(pair->fd);
}

static void text_expect(struct pair *pair, const char *text)
{
	char bytes[STREAM_BYTES];
	ssize_t n = stream_read(&pair->stream, bytes, STREAM_READ_BYTES);

	assert_int_equal(n, strlen(text));
	assert_memory_equal(bytes, text, strlen(text));
}

static void nothing_expect(struct pair *pair, size_t most)
{
	char bytes[STREAM_BYTES];

	assert_int_equal(stream_read(&pair->stream, bytes, most), -1);
	assert_int_equal(errno, EAGAIN);
}

static int fired;

static void on_fire(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	(void)data;
	fired++;
}

/* Whether an event that waits for the stream is active without a byte in the socket. */
static int is_seen(struct pair *pair)
{
	struct event_base *base = event_base_new();
	struct event *event = event_new(base, pair->stream.fd, EV_READ, on_fire, NULL);

	fired = 0;
	stream_watch(&pair->stream, event, NULL);
	event_base_loop(base, EVLOOP_NONBLOCK);
	event_free(event);
	event_base_free(base);
	return fired;
}

static void test_pieces(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair);
	pair_shake(&pair, 7, NULL);
	client_write(&pair, "hello");
	while (client_flush(&pair, 10) == 10) {
		assert_true(is_seen(&pair));
		nothing_expect(&pair, STREAM_READ_BYTES);
		assert_int_equal(stream_held(&pair.stream), STREAM_RECORD_BYTES);
	}
	text_expect(&pair, "hello");
	assert_int_equal(stream_held(&pair.stream), 0);
	assert_false(is_seen(&pair));
	pair_close(&pair);
}

/* All records that were received together are there at once: no poll would tell of the others. */
static void test_records(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair);
	pair_shake(&pair, 65536, NULL);
	client_write(&pair, "one ");
	client_write(&pair, "two ");
	client_write(&pair, "three");
	client_flush(&pair, 65536);
	text_expect(&pair, "one two three");
	pair_close(&pair);
}

/* A whole record was received but for a byte; the last read brings as much again. */
static void test_largest(void **state)
{
	static char text[STREAM_RECORD_BYTES * 2 + 1], bytes[STREAM_BYTES];
	struct pair pair;
	size_t len = 0;
	ssize_t n;

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	pair_open(&pair);
	pair_shake(&pair, 65536, NULL);
	client_write(&pair, text);
	while (client_flush(&pair, 65536) > 0)
		;
	while ((n = stream_read(&pair.stream, bytes, 16300)) > 0 || errno == EAGAIN) {
		len += n > 0 ? (size_t)n : 0;
		if (len == sizeof(text) - 1)
			break;
	}
	assert_int_equal(len, sizeof(text) - 1);
	pair_close(&pair);
}

static void test_early(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair);
	pair_shake(&pair, 65536, "at once");
	assert_true(is_seen(&pair));
	text_expect(&pair, "at once");
	assert_false(is_seen(&pair));
	pair_close(&pair);
}

static void test_end(void **state)
{
	char bytes[STREAM_BYTES];
	struct pair pair;

	(void)state;
	pair_open(&pair);
	pair_shake(&pair, 65536, NULL);
	client_write(&pair, "bye");
	SSL_shutdown(pair.client);
	client_flush(&pair, 65536);
	text_expect(&pair, "bye");
	assert_true(is_seen(&pair)); /* although nothing is in the socket */
	assert_int_equal(stream_read(&pair.stream, bytes, STREAM_READ_BYTES), 0);
	pair_close(&pair);
}

static void test_forged(void **state)
{
	char bytes[STREAM_BYTES];
	struct pair pair;

	(void)state;
	pair_open(&pair);
	pair_shake(&pair, 65536, NULL);
	assert_int_equal(send(pair.fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
	assert_int_equal(stream_read(&pair.stream, bytes, STREAM_READ_BYTES), -1);
	assert_int_equal(errno, EPROTO);
	pair_close(&pair);
	pair_open(&pair);
	assert_int_equal(send(pair.fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
	assert_int_equal(stream_handshake(&pair.stream), -1);
	pair_close(&pair);
}

/* More than the kernel takes: the rest waits in order, and only so much of it is encrypted. */
static void test_output(void **state)
{
	static char all[BIG], got[BIG];
	struct evbuffer *output = evbuffer_new();
	size_t len = 0, most = 0;
	struct pair pair;
	int n;

	(void)state;
	for (size_t i = 0; i < BIG; i++)
		all[i] = (char)(i * 31 / 7);
	pair_open(&pair);
	pair_shake(&pair, 65536, NULL);
	evbuffer_add(output, all, BIG);
	while (len < BIG) {
		assert_int_equal(stream_write(&pair.stream, output), 0);
		if (stream_unsent(&pair.stream) > most)
			most = stream_unsent(&pair.stream);
		client_receive(&pair);
		while ((n = SSL_read(pair.client, got + len, (int)(BIG - len))) > 0)
			len += (size_t)n;
	}
	assert_memory_equal(got, all, BIG);
	assert_true(most > 0 && most < 2 * STREAM_RECORD_BYTES);
	assert_int_equal(stream_unsent(&pair.stream), 0);
	evbuffer_free(output);
	pair_close(&pair);
}

/* The client is told, so that it knows that nothing was cut off. */
static void test_close(void **state)
{
	struct pair pair;
	char byte;

	(void)state;
	pair_open(&pair);
	pair_shake(&pair, 65536, NULL);
	stream_close(&pair.stream);
	client_receive(&pair);
	assert_int_equal(SSL_read(pair.client, &byte, 1), 0);
	assert_int_equal(SSL_get_error(pair.client, 0), SSL_ERROR_ZERO_RETURN);
	SSL_free(pair.client);
	close(pair.fd);
}

static void test_plain(void **state)
{
	struct evbuffer *output = evbuffer_new();
	struct pair pair = { .fd = -1 };
	char bytes[STREAM_BYTES];
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	stream_init(&pair.stream, fds[0]);
	assert_int_equal(send(fds[1], "hello", 5, 0), 5);
	text_expect(&pair, "hello");
	nothing_expect(&pair, 1);
	evbuffer_add(output, "reply", 5);
	assert_int_equal(stream_write(&pair.stream, output), 0);
	assert_int_equal(recv(fds[1], bytes, sizeof(bytes), 0), 5);
	assert_int_equal(stream_write(&pair.stream, output), 0);
	close(fds[1]);
	evbuffer_add(output, "reply", 5);
	assert_int_equal(stream_write(&pair.stream, output), -1);
	assert_int_equal(stream_read(&pair.stream, bytes, 1), 0);
	stream_close(&pair.stream);
	evbuffer_free(output);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),  cmocka_unit_test(test_records),
		cmocka_unit_test(test_largest), cmocka_unit_test(test_early),
		cmocka_unit_test(test_end),     cmocka_unit_test(test_forged),
		cmocka_unit_test(test_output),  cmocka_unit_test(test_close),
		cmocka_unit_test(test_plain),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
