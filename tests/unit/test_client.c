/*
 * Connections of a client to a server of this test: what the owner is told of bytes that come in
 * pieces, and of connections that end.
 */
#include "client/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RESET "104"     /* ECONNRESET */
#define REFUSED "111"   /* ECONNREFUSED */
#define TIMED_OUT "110" /* ETIMEDOUT */
#define TURN_US 200000
#define TOLD_SIZE 4096
#define LONG_BYTES (1 << 20) /* beyond them a line comes in pieces */

struct fixture {
	int listener, server;
	struct gateway_address address;
	struct client client;
	char told[TOLD_SIZE]; /* what the owner was told, as words */
	size_t long_bytes;    /* of lines that do not fit into it */
	int long_n;
	int ends; /* the owner ends the connection at a reply */
};

static void tell(struct fixture *f, const char *format, ...)
{
	size_t len = strlen(f->told);
	va_list list;

	va_start(list, format);
	vsnprintf(f->told + len, sizeof(f->told) - len, format, list);
	va_end(list);
}

static void fill(void *context, uint32_t i)
{
	struct fixture *f = context;

	(void)i;
	tell(f, "fill ");
}

static void reply_take(void *context, uint32_t i, const struct client_reply *reply,
		       const char *line, size_t len)
{
	struct fixture *f = context;

	if (len > 100) {
		f->long_bytes += len;
		f->long_n++;
		return;
	}
	if (reply)
		tell(f, "%lld:%d ", (long long)reply->request, reply->code);
	else
		tell(f, "<%.*s> ", (int)len, line);
	if (f->ends)
		client_end(&f->client, i);
}

static void lost(void *context, uint32_t i)
{
	struct fixture *f = context;

	(void)i;
	tell(f, "lost:%d ", f->client.error_number);
}

static void refused(void *context, uint32_t i)
{
	struct fixture *f = context;

	(void)i;
	tell(f, "refused:%d ", f->client.error_number);
}

static int setup(void **state)
{
	static struct fixture f;
	struct sockaddr_in *in = (struct sockaddr_in *)&f.address.address;

	memset(&f, 0, sizeof(f));
	f.server = -1;
	f.address.len = sizeof(*in);
	f.address.key = "";
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f.listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(f.listener, (struct sockaddr *)in, sizeof(*in)), 0);
	assert_int_equal(listen(f.listener, 10), 0);
	assert_int_equal(getsockname(f.listener, (struct sockaddr *)in, &f.address.len), 0);
	*state = &f;
	return 0;
}

static void client_make(struct fixture *f, int on_demand, uint32_t sources)
{
	const struct client_owner owner = {
		.context = f, .fill = fill, .reply = reply_take, .lost = lost, .refused = refused
	};
	const struct client_form form = { .address = &f->address,
					  .n = 1,
					  .out_bytes = 100,
					  .on_demand = on_demand,
					  .sources = sources };

	client_init(&f->client, &owner, &form);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	client_fini(&f->client);
	close(f->server);
	close(f->listener);
	return 0;
}

/* One turn, which must tell exactly this. */
static void turn_tells(struct fixture *f, const char *expected)
{
	f->told[0] = '\0';
	client_wait(&f->client, *expected ? 10 * TURN_US : TURN_US);
	assert_string_equal(f->told, expected);
}

/* Until it is connected. */
static void connected(struct fixture *f)
{
	while (f->client.open_n == 0)
		client_wait(&f->client, TURN_US);
	f->server = accept(f->listener, NULL, NULL);
	assert_true(f->server >= 0);
	f->told[0] = '\0';
}

static void sends(struct fixture *f, const char *bytes)
{
	assert_int_equal(send(f->server, bytes, strlen(bytes), 0), strlen(bytes));
}

static void test_lines(void **state)
{
	struct fixture *f = *state;

	client_make(f, 0, 0);
	connected(f);
	sends(f, "{\"id\":1,\"code\":0}\n\n{\"code\":20}\nno reply\n{\"id\":2,\"co");
	turn_tells(f, "1:0 -1:20 <no reply> fill ");
	sends(f, "de\":2}");
	turn_tells(f, "fill ");
	sends(f, "\n\n");
	turn_tells(f, "2:2 fill ");
}

/* It is bounded, and what follows it is read. */
static void test_long_line(void **state)
{
	struct fixture *f = *state;
	char *bytes = malloc(1000);

	client_make(f, 0, 0);
	connected(f);
	memset(bytes, 'x', 1000);
	for (int i = 0; i < 2500; i++) {
		assert_int_equal(send(f->server, bytes, 1000, 0), 1000);
		client_wait(&f->client, 0);
		f->told[0] = '\0';
	}
	sends(f, "\n{\"code\":0}\n");
	while (!strstr(f->told, "-1:0 "))
		client_wait(&f->client, TURN_US);
	assert_int_equal(f->long_bytes, 2500 * 1000);
	assert_int_equal(f->long_n, 3);
	assert_true(f->client.list[0].part_room <= 2 * LONG_BYTES);
	free(bytes);
}

#define HEAD "HTTP/1.1 200 OK\r\nContent-Length: "

static void test_http(void **state)
{
	struct fixture *f = *state;

	f->address.is_http = 1;
	client_make(f, 0, 0);
	connected(f);
	sends(f, HEAD "18\r\n\r\n{\"id\":1,\"code\":0}\n" HEAD "2\r\n\r\n{}" HEAD "11\r\n\r\n");
	turn_tells(f, "1:0 <{}> fill ");
	sends(f, "{\"code\":2}\nHTTP/1.1 429 Too Many\r\nContent-Length: 11\r\n\r\n{\"code\":20}");
	/* The status of out_of_stock is another one. */
	turn_tells(f, "<{\"code\":2}> -1:20 fill ");
	sends(f, "busy\n");
	turn_tells(f, "<busy\n> lost:0 ");
	assert_int_equal(f->client.list[0].state, CLIENT_CLOSED);
}

/* A gateway that does not say whether it takes the key. */
static void test_not_open_in_time(void **state)
{
	struct fixture *f = *state;
	char presented[100];

	f->address.key = "cmq_key";
	client_make(f, 0, 0);
	client_wait(&f->client, TURN_US);
	f->server = accept(f->listener, NULL, NULL);
	while (f->client.list[0].state != CLIENT_PRESENTING)
		client_wait(&f->client, TURN_US);
	assert_true(recv(f->server, presented, sizeof(presented), 0) > 0);
	f->told[0] = '\0';
	client_close_unopened(&f->client, f->client.list[0].begun_us);
	assert_string_equal(f->told, "");
	client_close_unopened(&f->client, f->client.list[0].begun_us + 1);
	assert_string_equal(f->told, "refused:" TIMED_OUT " ");
	assert_int_equal(f->client.list[0].state, CLIENT_CLOSED);
	close(f->server);
	while (f->client.list[0].state != CLIENT_PRESENTING)
		client_wait(&f->client, TURN_US);
	f->server = accept(f->listener, NULL, NULL);
	sends(f, "{\"code\":0}\n");
	while (f->client.open_n == 0)
		client_wait(&f->client, TURN_US);
	f->told[0] = '\0';
	client_close_unopened(&f->client, f->client.list[0].begun_us + 1);
	assert_string_equal(f->told, "");
	assert_int_equal(f->client.open_n, 1);
}

/* What comes after the owner has ended the connection is told nobody. */
static void test_ended_by_its_owner(void **state)
{
	struct fixture *f = *state;

	client_make(f, 1, 0);
	f->ends = 1;
	turn_tells(f, "");
	client_connect(&f->client, 0);
	connected(f);
	sends(f, "{\"code\":0}\n{\"code\":2}\n{");
	turn_tells(f, "-1:0 ");
	assert_int_equal(f->client.open_n, 0);
	assert_int_equal(f->client.closed_n, 1);
	assert_int_equal(f->client.disconnections, 0);
	close(f->server);
	/* The next one begins anew. */
	client_connect(&f->client, 0);
	connected(f);
	sends(f, "{\"code\":3}\n");
	turn_tells(f, "-1:3 ");
}

static void test_lost_and_refused(void **state)
{
	struct fixture *f = *state;
	const struct linger reset = { .l_onoff = 1 };

	client_make(f, 1, 0);
	client_connect(&f->client, 0);
	connected(f);
	shutdown(f->server, SHUT_WR);
	turn_tells(f, "lost:0 ");
	turn_tells(f, "");
	close(f->server);
	client_connect(&f->client, 0);
	connected(f);
	setsockopt(f->server, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(f->server);
	f->server = -1;
	turn_tells(f, "lost:" RESET " ");
	close(f->listener);
	client_connect(&f->client, 0);
	turn_tells(f, "refused:" REFUSED " ");
	turn_tells(f, "");
	assert_int_equal(f->client.disconnections, 2);
	assert_int_equal(f->client.closed_n, 1);
}

/* Not on demand it is opened again. */
static void test_opened_again(void **state)
{
	struct fixture *f = *state;

	client_make(f, 0, 0);
	connected(f);
	close(f->server);
	turn_tells(f, "lost:0 ");
	connected(f);
	assert_int_equal(f->client.disconnections, 1);
}

static void test_sources(void **state)
{
	struct fixture *f = *state;
	static const char *const expected[] = { "127.0.0.1", "127.0.0.2", "127.0.0.3",
						"127.0.0.1" };

	client_make(f, 1, 3);
	for (int i = 0; i < 4; i++) {
		struct sockaddr_in peer;
		socklen_t len = sizeof(peer);

		client_connect(&f->client, 0);
		connected(f);
		assert_int_equal(getpeername(f->server, (struct sockaddr *)&peer, &len), 0);
		assert_string_equal(inet_ntoa(peer.sin_addr), expected[i]);
		client_end(&f->client, 0);
		close(f->server);
	}
	f->server = -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lines),
		TEST(test_long_line),
		TEST(test_http),
		TEST(test_not_open_in_time),
		TEST(test_ended_by_its_owner),
		TEST(test_lost_and_refused),
		TEST(test_opened_again),
		TEST(test_sources),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
