/*
 * The gateway's publisher thread against peers that are no broker: a port without a listener, a
 * peer that sends nothing, one that closes the connection, one that sends another protocol. It must
 * accept batches, drop none, and end in time. And against a broker that does not confirm: what is
 * not confirmed is published again. Most useful under SAN=thread.
 */
#include "common/clock.h"
#include "common/log/log.h"
#include "gateway/publish/publisher.h"
#include "tests/unit/fake_broker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define BATCHES 200
#define END_MS 12000 /* an RPC's time, and room for a slow machine */

enum manner { MANNER_SILENT, MANNER_HANG_UP, MANNER_NONSENSE };

/* A peer on a port of its own. */
struct peer {
	enum manner manner;
	int listener;
	int port;
	int stop; /* eventfd */
	pthread_t thread;
	atomic_int accepted;
};

static int listener_new(int *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)(void *)&address, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&address, &len), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

static void *peer_main(void *data)
{
	static const char nonsense[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
	struct peer *peer = data;
	struct pollfd fds[2] = { { .fd = peer->listener, .events = POLLIN },
				 { .fd = peer->stop, .events = POLLIN } };
	int silent[16], silent_n = 0;

	for (;;) {
		int fd;

		poll(fds, 2, -1);
		if (fds[1].revents)
			break;
		fd = accept(peer->listener, NULL, NULL);
		if (fd < 0)
			continue;
		atomic_fetch_add(&peer->accepted, 1);
		if (peer->manner == MANNER_SILENT && silent_n < 16) {
			silent[silent_n++] = fd;
			continue;
		}
		if (peer->manner == MANNER_NONSENSE &&
		    write(fd, nonsense, sizeof(nonsense) - 1) < 0)
			perror("write");
		close(fd);
	}
	while (silent_n > 0)
		close(silent[--silent_n]);
	return NULL;
}

static void peer_start(struct peer *peer, enum manner manner)
{
	memset(peer, 0, sizeof(*peer));
	peer->manner = manner;
	peer->listener = listener_new(&peer->port);
	peer->stop = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(listen(peer->listener, 16), 0);
	assert_int_equal(pthread_create(&peer->thread, NULL, peer_main, peer), 0);
}

static void peer_stop(struct peer *peer)
{
	uint64_t one = 1;

	assert_int_equal(write(peer->stop, &one, sizeof(one)), sizeof(one));
	pthread_join(peer->thread, NULL);
	close(peer->listener);
	close(peer->stop);
}

static struct publisher *publisher_at(int port, int *wake_fd)
{
	static char url[64]; /* outlives the publisher */

	snprintf(url, sizeof(url), "amqp://guest:guest@127.0.0.1:%d/%%2f", port);
	return publisher_new(url, wake_fd);
}

static struct batch *batch_make(int number)
{
	static const char body[] = "{\"v\":1}";
	struct batch *batch = calloc(1, sizeof(*batch) + sizeof(body));

	batch->coupon = 1001;
	batch->receives = 1;
	batch->wants_outcome = number % 2;
	memcpy(batch->ulid.bytes, &number, sizeof(number));
	batch->body_len = sizeof(body) - 1;
	memcpy(batch->body, body, batch->body_len);
	return batch;
}

/* As the event loop does; nothing is collected, because there are no confirms. */
static void loop_turn(struct publisher *publisher)
{
	struct reply_message_list outcomes = STAILQ_HEAD_INITIALIZER(outcomes);
	struct batch_list confirmed = STAILQ_HEAD_INITIALIZER(confirmed);
	char trouble[256];

	publisher_collect(publisher, &confirmed, &outcomes);
	assert_true(STAILQ_EMPTY(&confirmed) && STAILQ_EMPTY(&outcomes));
	publisher_trouble(publisher, trouble, sizeof(trouble));
	assert_true(strlen(trouble) > 0);
}

static void publisher_end(struct publisher *publisher)
{
	int64_t began_ms = clock_monotonic_ms();

	publisher_free(publisher, 0);
	assert_true(clock_monotonic_ms() - began_ms < END_MS);
}

/* Waits until an error is reported: the first attempt to connect has ended. */
static void trouble_wait(struct publisher *publisher)
{
	int64_t began_ms = clock_monotonic_ms();
	char trouble[256];

	do {
		assert_true(clock_monotonic_ms() - began_ms < END_MS);
		usleep(5000);
		publisher_trouble(publisher, trouble, sizeof(trouble));
	} while (strcmp(trouble, "connecting") == 0);
	assert_true(strlen(trouble) > 0);
}

static void batches_submit(struct publisher *publisher)
{
	for (int i = 0; i < BATCHES; i++) {
		publisher_submit(publisher, batch_make(i));
		if (i % 10 == 0)
			loop_turn(publisher);
	}
}

static void test_nobody_listens(void **state)
{
	struct publisher *publisher;
	int wake_fd, port,
		fd = listener_new(
			&port); /* bound, so that no other process gets it, and not listening */

	(void)state;
	publisher = publisher_at(port, &wake_fd);
	assert_true(wake_fd >= 0);
	batches_submit(publisher);
	trouble_wait(publisher);
	batches_submit(publisher);
	publisher_end(publisher);
	close(fd);
}

static void test_stopped_at_once(void **state)
{
	int wake_fd, port, fd = listener_new(&port);

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct publisher *publisher = publisher_at(port, &wake_fd);

		publisher_submit(publisher, batch_make(i));
		publisher_end(publisher);
	}
	close(fd);
}

static void peer_meet(enum manner manner, int tries)
{
	int64_t began_ms = clock_monotonic_ms();
	struct publisher *publisher;
	struct peer peer;
	int wake_fd;

	peer_start(&peer, manner);
	publisher = publisher_at(peer.port, &wake_fd);
	while (atomic_load(&peer.accepted) < tries) { /* it reconnects repeatedly */
		assert_true(clock_monotonic_ms() - began_ms < END_MS);
		publisher_submit(publisher, batch_make(0));
		loop_turn(publisher);
		usleep(1000);
	}
	batches_submit(publisher);
	publisher_end(publisher);
	peer_stop(&peer);
}

static void test_hangs_up(void **state)
{
	(void)state;
	peer_meet(MANNER_HANG_UP, 3);
}

static void test_nonsense(void **state)
{
	(void)state;
	peer_meet(MANNER_NONSENSE, 3);
}

/* The handshake has a time limit of its own, so that even this ends. */
static void test_silent(void **state)
{
	(void)state;
	peer_meet(MANNER_SILENT, 1);
}

static void test_wrong_url(void **state)
{
	struct publisher *publisher;
	char trouble[256];
	int wake_fd;

	(void)state;
	publisher = publisher_new("amqpx://h", &wake_fd);
	trouble_wait(publisher);
	publisher_trouble(publisher, trouble, sizeof(trouble));
	assert_non_null(strstr(trouble, "AMQP_URL"));
	publisher_end(publisher);
}

/* `failure` is what happens to the first publish: nothing is confirmed before the second. */
static void unconfirmed_meet(enum fake_answer failure)
{
	struct reply_message_list outcomes = STAILQ_HEAD_INITIALIZER(outcomes);
	struct batch_list confirmed = STAILQ_HEAD_INITIALIZER(confirmed);
	struct fake_broker broker = { .plan = { failure, FAKE_ACK } };
	int64_t began_ms = clock_monotonic_ms();
	struct publisher *publisher;
	char url[64];
	int wake_fd;

	assert_int_equal(fake_broker_start(&broker, url), 0);
	publisher = publisher_new(url, &wake_fd);
	publisher_submit(publisher, batch_make(1));
	while (STAILQ_EMPTY(&confirmed)) {
		assert_true(clock_monotonic_ms() - began_ms < END_MS);
		usleep(1000);
		publisher_collect(publisher, &confirmed, &outcomes);
	}
	assert_int_equal(broker.published, 2);
	assert_null(STAILQ_NEXT(STAILQ_FIRST(&confirmed), next));
	free(STAILQ_FIRST(&confirmed));
	publisher_end(publisher);
	fake_broker_stop(&broker);
}

static void test_not_confirmed(void **state)
{
	static const enum fake_answer failures[] = { FAKE_HANG_UP, FAKE_NACK, FAKE_RETURN };

	(void)state;
	for (size_t i = 0; i < sizeof(failures) / sizeof(*failures); i++)
		unconfirmed_meet(failures[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_listens), cmocka_unit_test(test_stopped_at_once),
		cmocka_unit_test(test_hangs_up),       cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_silent),         cmocka_unit_test(test_wrong_url),
		cmocka_unit_test(test_not_confirmed),
	};

	log_init("test", LOG_LEVEL_ERROR, 0);
	return cmocka_run_group_tests_name("publisher", tests, NULL, NULL);
}
