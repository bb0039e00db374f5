/*
 * The link, the confirmed publisher and the sender of common/rabbit/ against a broker that
 * confirms, refuses, returns, disconnects and blocks as each test requires.
 */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/rabbit/rabbit_publisher.h"
#include "common/rabbit/topology.h"
#include "fake_broker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#define ITEMS 16
#define WAIT_MS 10000

/*
 * The clocks of common/clock.c, which are not linked: the monotonic one may be moved on. The tests
 * have one thread that reads it, besides those that open connections.
 */
static atomic_llong moved_ms;

int64_t clock_monotonic_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 + moved_ms * 1000;
}

int64_t clock_monotonic_ms(void)
{
	return clock_monotonic_us() / 1000;
}

int64_t clock_wall_ms(void)
{
	return (int64_t)time(NULL) * 1000;
}

char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
	snprintf(out, CLOCK_RFC3339_SIZE, "%lld", (long long)wall_ms);
	return out;
}

struct item {
	char correlation[8];
	enum confirm_result result;
	int ended; /* how often */
};

struct rig {
	struct fake_broker broker;
	char url[64];
	struct rabbit_publisher *publisher;
	struct item items[ITEMS];
	int ended; /* of all items */
	int order[ITEMS];
	int opened, lost;
	int deliveries[2]; /* by source */
	uint64_t last_tag;
};

static void item_done(void *context, void *item, enum confirm_result result)
{
	struct rig *rig = context;
	struct item *it = item;

	it->result = result;
	it->ended++;
	assert_true(rig->ended < ITEMS);
	rig->order[rig->ended++] = (int)(it - rig->items);
}

static int item_same(const void *item, const void *wanted)
{
	const amqp_bytes_t *correlation = wanted;
	const struct item *it = item;

	return correlation->len == strlen(it->correlation) &&
	       memcmp(correlation->bytes, it->correlation, correlation->len) == 0;
}

static void opened(void *context)
{
	((struct rig *)context)->opened++;
}

static void lost(void *context)
{
	((struct rig *)context)->lost++;
}

static void delivered(void *context, size_t source, uint64_t tag, struct envelope *envelope)
{
	struct rig *rig = context;

	assert_true(source < 2);
	assert_true(tag == rig->last_tag + 1);
	assert_int_equal(envelope->body_len, 4);
	assert_memory_equal(envelope->body, "body", 4);
	rig->deliveries[source]++;
	rig->last_tag = tag;
	envelope_free(envelope);
}

static const struct rabbit_publisher_port by_tag = { .done = item_done,
						     .opened = opened,
						     .lost = lost };
static const struct rabbit_source replies = { .queue = "amq.rabbitmq.reply-to" };
static const struct rabbit_publisher_port by_correlation = { .done = item_done,
							     .same = item_same,
							     .opened = opened,
							     .lost = lost,
							     .source = &replies,
							     .delivered = delivered };

static void rig_start(struct rig *rig, const enum fake_answer *plan, size_t n)
{
	memset(rig, 0, sizeof(*rig));
	for (size_t i = 0; i < n; i++)
		rig->broker.plan[i] = plan[i];
	for (int i = 0; i < ITEMS; i++)
		snprintf(rig->items[i].correlation, sizeof(rig->items[i].correlation), "c-%d", i);
	assert_int_equal(fake_broker_start(&rig->broker, rig->url), 0);
}

static void rig_stop(struct rig *rig)
{
	rabbit_publisher_free(rig->publisher);
	fake_broker_stop(&rig->broker);
}

static void link_turn(struct rabbit_link *link)
{
	struct pollfd pollfd = { .fd = rabbit_link_fd(link), .events = POLLIN };

	poll(&pollfd, 1, 5);
	rabbit_link_step(link, clock_monotonic_ms());
	rabbit_link_read(link);
}

#define UNTIL(link, condition)                                                               \
	for (int64_t end_ms = clock_monotonic_ms() + WAIT_MS; !(condition); link_turn(link)) \
	assert_true(clock_monotonic_ms() < end_ms)

static void publisher_start(struct rig *rig, const struct rabbit_publisher_port *port)
{
	rig->publisher = rabbit_publisher_new("test", rig->url, port, rig);
	UNTIL(rabbit_publisher_link(rig->publisher), rabbit_publisher_ready(rig->publisher));
}

static void item_send(struct rig *rig, int i)
{
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_CORRELATION_ID_FLAG,
		.correlation_id = amqp_cstring_bytes(rig->items[i].correlation),
	};

	rabbit_publisher_send(rig->publisher, "x", "y", &properties, amqp_cstring_bytes("body"),
			      &rig->items[i]);
}

static void items_send(struct rig *rig, int first, int n)
{
	for (int i = first; i < first + n; i++)
		item_send(rig, i);
	UNTIL(rabbit_publisher_link(rig->publisher), rabbit_publisher_open(rig->publisher) == 0);
}

static void results_expect(const struct rig *rig, int n, const enum confirm_result *results)
{
	assert_int_equal(rig->ended, n);
	for (int i = 0; i < n; i++) {
		assert_int_equal(rig->items[i].ended, 1);
		assert_int_equal(rig->items[i].result, results[i]);
	}
}

static void test_confirmed_and_refused(void **state)
{
	static const enum fake_answer plan[] = { FAKE_ACK, FAKE_NACK, FAKE_ACK };
	static const enum confirm_result results[] = { CONFIRM_DONE, CONFIRM_NACKED, CONFIRM_DONE };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 3);
	publisher_start(&rig, &by_tag);
	assert_string_equal(rabbit_link_trouble(rabbit_publisher_link(rig.publisher)), "");
	items_send(&rig, 0, 3);
	results_expect(&rig, 3, results);
	assert_int_equal(rig.opened, 1);
	assert_int_equal(rig.lost, 0);
	rig_stop(&rig);
	assert_int_equal(rig.broker.tagged, 3);
}

static void test_one_ack_of_several(void **state)
{
	static const enum fake_answer plan[] = { FAKE_SILENCE, FAKE_SILENCE, FAKE_ACK_ALL };
	static const enum confirm_result results[] = { CONFIRM_DONE, CONFIRM_DONE, CONFIRM_DONE };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 3);
	publisher_start(&rig, &by_tag);
	items_send(&rig, 0, 3);
	results_expect(&rig, 3, results);
	assert_int_equal(rig.lost, 0);
	rig_stop(&rig);
}

/* The returned message is identified, and everything is declared again before the next one. */
static void return_run(const struct rabbit_publisher_port *port, enum fake_answer answer,
		       int tagged)
{
	const enum fake_answer plan[] = { FAKE_ACK, answer, FAKE_ACK, FAKE_ACK, FAKE_ACK };
	static const enum confirm_result results[] = { CONFIRM_DONE, CONFIRM_RETURNED, CONFIRM_DONE,
						       CONFIRM_DONE, CONFIRM_DONE };
	struct rig rig;
	int declared;

	rig_start(&rig, plan, 5);
	publisher_start(&rig, port);
	declared = rig.broker.declared;
	items_send(&rig, 0, 3);
	assert_int_equal(rig.broker.declared, declared);
	items_send(&rig, 3, 2);
	results_expect(&rig, 5, results);
	assert_int_equal(rig.broker.declared, 2 * declared);
	assert_int_equal(rig.opened, 1);
	rig_stop(&rig);
	assert_int_equal(rig.broker.tagged, tagged);
}

static void test_returned_by_tag(void **state)
{
	(void)state;
	return_run(&by_tag, FAKE_RETURN, 5);
	return_run(&by_tag, FAKE_RETURN_WITHOUT_BODY, 5);
}

static void test_returned_by_correlation(void **state)
{
	(void)state;
	return_run(&by_correlation, FAKE_RETURN, 0);
}

/* Items 0 to 7 go to one queue, the others to another. */
static size_t item_way(const void *item)
{
	return atoi(((const struct item *)item)->correlation + strlen("c-")) >= 8;
}

static const struct rabbit_publisher_port by_way = {
	.done = item_done, .way = item_way, .opened = opened, .lost = lost
};

#define REFUSED_MS 4100 /* more than the publisher endures */

/* One queue refuses, and the messages for another one are confirmed all the time. */
static void test_a_queue_that_refuses_beside_another(void **state)
{
	static const enum fake_answer plan[] = { FAKE_NACK, FAKE_ACK,  FAKE_ACK,
						 FAKE_NACK, FAKE_NACK, FAKE_ACK };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 6);
	publisher_start(&rig, &by_way);
	items_send(&rig, 0, 1);
	items_send(&rig, 8, 1);
	moved_ms += REFUSED_MS;
	items_send(&rig, 9, 1);
	assert_int_equal(rig.lost, 0); /* not tried again: it may accept messages now */
	items_send(&rig, 1, 1);
	UNTIL(rabbit_publisher_link(rig.publisher), rig.lost == 1);
	assert_int_equal(rig.items[1].result, CONFIRM_NACKED);
	UNTIL(rabbit_publisher_link(rig.publisher), rig.opened == 2);
	/* A new connection begins anew. */
	items_send(&rig, 2, 1);
	items_send(&rig, 3, 1);
	assert_int_equal(rig.lost, 1);
	assert_int_equal(rig.items[3].result, CONFIRM_DONE);
	rig_stop(&rig);
}

static void test_a_queue_that_accepts_in_between(void **state)
{
	static const enum fake_answer plan[] = { FAKE_NACK, FAKE_ACK, FAKE_NACK, FAKE_ACK };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 4);
	publisher_start(&rig, &by_way);
	items_send(&rig, 0, 2);
	moved_ms += REFUSED_MS;
	items_send(&rig, 2, 2);
	assert_int_equal(rig.lost, 0);
	rig_stop(&rig);
}

/* Open messages end as lost, in order; then there is a new connection. */
static void test_connection_lost(void **state)
{
	static const enum fake_answer plan[] = { FAKE_ACK, FAKE_SILENCE, FAKE_HANG_UP, FAKE_ACK };
	static const enum confirm_result results[] = { CONFIRM_DONE, CONFIRM_LOST, CONFIRM_LOST };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 4);
	publisher_start(&rig, &by_tag);
	items_send(&rig, 0, 3);
	results_expect(&rig, 3, results);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig.order[i], i);
	assert_int_equal(rig.lost, 1);
	assert_true(strlen(rabbit_link_trouble(rabbit_publisher_link(rig.publisher))) > 0);
	UNTIL(rabbit_publisher_link(rig.publisher), rabbit_publisher_ready(rig.publisher));
	assert_string_equal(rabbit_link_trouble(rabbit_publisher_link(rig.publisher)), "");
	items_send(&rig, 3, 1);
	assert_int_equal(rig.items[3].result, CONFIRM_DONE);
	assert_int_equal(rig.opened, 2);
	rig_stop(&rig);
}

static void test_blocked_for_a_moment(void **state)
{
	static const enum fake_answer plan[] = { FAKE_BLOCK };
	struct rabbit_link *link;
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 1);
	publisher_start(&rig, &by_tag);
	link = rabbit_publisher_link(rig.publisher);
	item_send(&rig, 0);
	UNTIL(link, rabbit_link_blocked(link));
	assert_false(rabbit_publisher_ready(rig.publisher));
	assert_non_null(strstr(rabbit_link_trouble(link), "blocked"));
	UNTIL(link, rabbit_publisher_ready(rig.publisher));
	UNTIL(link, rabbit_publisher_open(rig.publisher) == 0);
	assert_int_equal(rig.items[0].result, CONFIRM_DONE);
	rig_stop(&rig);
}

static void test_open_items_end_when_it_is_freed(void **state)
{
	static const enum fake_answer plan[] = { FAKE_SILENCE };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 1);
	publisher_start(&rig, &by_tag);
	item_send(&rig, 0);
	assert_int_equal(rig.ended, 0);
	rig_stop(&rig);
	results_expect(&rig, 1, (enum confirm_result[]){ CONFIRM_LOST });
}

/* Each ends the connection, and the next one works. */
static void test_frames_that_do_not_belong_together(void **state)
{
	static const enum fake_answer plan[] = { FAKE_BODY_FIRST,  FAKE_HEADER_FIRST,
						 FAKE_TWO_HEADERS, FAKE_NO_HEADER,
						 FAKE_TWO_METHODS, FAKE_CANCEL,
						 FAKE_UNEXPECTED };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 7);
	publisher_start(&rig, &by_tag);
	for (int i = 0; i < 7; i++) {
		struct rabbit_link *link = rabbit_publisher_link(rig.publisher);

		items_send(&rig, i, 1);
		assert_int_equal(rig.items[i].result, CONFIRM_LOST);
		assert_int_equal(rig.lost, i + 1);
		assert_string_equal(rabbit_link_trouble(link),
				    i < 5    ? "the broker sent frames out of order"
				    : i == 5 ? "the broker ended the consumer"
					     : "the broker sent an unexpected method");
		UNTIL(link, rabbit_publisher_ready(rig.publisher));
	}
	items_send(&rig, 7, 1);
	assert_int_equal(rig.items[7].result, CONFIRM_DONE);
	rig_stop(&rig);
}

static void test_replies_are_consumed_on_the_same_channel(void **state)
{
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL, 0);
	rig.broker.delivers = 1;
	publisher_start(&rig, &by_correlation);
	UNTIL(rabbit_publisher_link(rig.publisher), rig.deliveries[0] == 1);
	items_send(&rig, 0, 2);
	assert_int_equal(rig.broker.prefetch_sum, 0);
	rig_stop(&rig);
}

static void turns(struct rabbit_link *link, int n)
{
	while (n-- > 0)
		link_turn(link);
}

/* Each with its prefetch; one cancel a consumer. */
static void test_a_link_of_two_sources(void **state)
{
	static const struct rabbit_link_events events = { .delivered = delivered };
	static const struct rabbit_source sources[] = { { "a", 10 }, { "b", 3 } };
	struct rabbit_link *link;
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL, 0);
	rig.broker.delivers = 1;
	link = rabbit_link_new("test", rig.url, sources, 2, &events, &rig);
	UNTIL(link, rig.deliveries[0] == 1 && rig.deliveries[1] == 1);
	assert_int_equal(rig.broker.prefetch_sum, 13);
	assert_int_equal(rig.broker.global, 0);
	assert_int_equal(rabbit_link_ack(link, rig.last_tag, 1), 0);
	assert_int_equal(rabbit_link_cancel(link), 0);
	UNTIL(link, rig.broker.cancelled == 2);
	rabbit_link_leave(link, 0, 1000); /* requested before the broker had read the cancel */
	assert_true(rabbit_link_deadline_ms(link, clock_monotonic_ms()) > clock_monotonic_ms());
	turns(link, 5);
	assert_true(rabbit_link_up(link));
	assert_int_equal(rig.broker.connections, 1);
	rabbit_link_free(link);
	rig_stop(&rig);
}

/*
 * Queues with other arguments, which are replaced while the link is up: the warning ends, and the
 * connection stays.
 */
static void test_queues_that_differ_for_a_time(void **state)
{
	static const struct rabbit_link_events events = { .lost = lost };
	struct rabbit_link *link;
	struct rig rig;
	cJSON *warnings = cJSON_CreateArray();

	(void)state;
	rig_start(&rig, NULL, 0);
	rig.broker.differs = 1;
	link = rabbit_link_new("test", rig.url, NULL, 0, &events, &rig);
	UNTIL(link, rabbit_link_up(link));
	assert_int_equal(rabbit_topology_differing_n(), RABBIT_QUEUES_N);
	rabbit_topology_warnings(warnings);
	assert_int_equal(cJSON_GetArraySize(warnings), RABBIT_QUEUES_N);
	cJSON_Delete(warnings);
	turns(link, 20);
	assert_int_equal(rig.broker.connections, 1);
	moved_ms += 31000;
	UNTIL(link, rig.broker.connections == 2 && rig.broker.closed == 1);
	assert_int_equal(rabbit_topology_differing_n(), RABBIT_QUEUES_N);
	rig.broker.differs = 0;
	turns(link, 20);
	assert_int_equal(rig.broker.connections, 2);
	moved_ms += 31000;
	UNTIL(link, rabbit_topology_differing_n() == 0 && rig.broker.closed == 2);
	moved_ms += 31000;
	turns(link, 20);
	assert_int_equal(rig.broker.connections, 3);
	assert_true(rabbit_link_up(link));
	assert_int_equal(rig.lost, 0);
	rabbit_link_free(link);
	rig_stop(&rig);
}

/* Queues that are there are declared and not bound again; those that are missing are bound. */
static void test_what_is_bound(void **state)
{
	static const enum fake_answer plan[] = { FAKE_RETURN, FAKE_ACK };
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 2);
	publisher_start(&rig, &by_tag);
	assert_int_equal(rig.broker.bound, 0);
	items_send(&rig, 0, 1);
	items_send(&rig, 1, 1);
	assert_int_equal(rig.broker.bound, RABBIT_QUEUES_N);
	rabbit_publisher_free(rig.publisher);
	rig.broker.lacks = 1;
	publisher_start(&rig, &by_tag);
	assert_int_equal(rig.broker.bound, 2 * RABBIT_QUEUES_N);
	rig_stop(&rig);
}

#define OPENINGS 24

/* A cluster of these nodes, the first one of which nobody listens on. */
static void cluster_url(char url[160], struct fake_broker brokers[2])
{
	char of_one[64];

	for (int i = 0; i < 2; i++) {
		memset(&brokers[i], 0, sizeof(brokers[i]));
		assert_int_equal(fake_broker_start(&brokers[i], of_one), 0);
		assert_int_equal(sscanf(of_one, "amqp://guest:guest@127.0.0.1:%d",
					&brokers[i].port),
				 1);
	}
	snprintf(url, 160, "amqp://guest:guest@127.0.0.1:1,127.0.0.1:%d,127.0.0.1:%d/%%2f",
		 brokers[0].port, brokers[1].port);
}

/*
 * How many nodes that are there were given up, by what an opening has told. On a busy machine one
 * may take longer than it has: nothing else is a reason.
 */
static int given_up_count(const char *error, const struct fake_broker brokers[2])
{
	char late[96];
	int n = 0;

	for (int i = 0; i < 2; i++) {
		snprintf(late, sizeof(late), "127.0.0.1:%d: ", brokers[i].port);
		if (brokers[i].refuses || !strstr(error, late))
			continue;
		snprintf(late, sizeof(late), "127.0.0.1:%d: %s", brokers[i].port,
			 amqp_error_string2(AMQP_STATUS_TIMEOUT));
		if (!strstr(error, late))
			fail_msg("%s", error);
		n++;
	}
	return n;
}

/* Opens a connection to one of the nodes, and closes it. Returns how many were given up. */
static int cluster_open(const char *url, const struct fake_broker brokers[2])
{
	amqp_connection_state_t connection;
	char error[RABBIT_ERROR_SIZE];
	int given_up = 0;

	do {
		connection = rabbit_connection_open(url, 0, error);
		given_up += given_up_count(error, brokers);
		assert_true(connection || given_up > 0);
		assert_true(given_up < OPENINGS / 2);
	} while (!connection);
	rabbit_connection_close(connection);
	return given_up;
}

/* A publisher comes up by one opening, unless that gave a node up. */
static void publisher_opens(const char *url, const struct fake_broker brokers[2])
{
	static const struct rabbit_publisher_port port = { .done = item_done };
	struct rabbit_publisher *publisher = rabbit_publisher_new("test", url, &port, NULL);
	struct rabbit_link *link = rabbit_publisher_link(publisher);

	for (int given_up = 0; !rabbit_link_up(link);) {
		rabbit_link_step(link, clock_monotonic_ms());
		while (rabbit_link_opens(link)) {
			struct pollfd pollfd = { .fd = rabbit_link_fd(link), .events = POLLIN };

			poll(&pollfd, 1, 50);
			rabbit_link_read(link);
		}
		if (rabbit_link_up(link))
			break;
		given_up += given_up_count(rabbit_link_trouble(link), brokers);
		assert_in_range(given_up, 1, OPENINGS / 2);
		moved_ms += 31000; /* longer than the pause */
	}
	rabbit_publisher_free(publisher);
}

/*
 * Each opening tries every host once, in random order, before it fails: a node that is down costs
 * no attempt, nor one that ends the connection in its first use.
 */
static void test_hosts_of_a_cluster(void **state)
{
	char url[160], error[RABBIT_ERROR_SIZE];
	static struct fake_broker brokers[2];
	int given_up = 0, sum;

	(void)state;
	cluster_url(url, brokers);
	for (int i = 0; i < OPENINGS; i++)
		given_up += cluster_open(url, brokers);
	/* one of 2^23 runs fails */
	assert_true(brokers[0].connections > 0 && brokers[1].connections > 0);
	sum = brokers[0].connections + brokers[1].connections;
	assert_in_range(sum, OPENINGS, OPENINGS + given_up);
	brokers[0].refuses = 1;
	for (int i = 0; i < 8; i++)
		publisher_opens(url, brokers);
	fake_broker_stop(&brokers[0]);
	fake_broker_stop(&brokers[1]);
	assert_null(rabbit_connection_open(url, 0, error));
	for (const char *one = url; (one = strstr(one, "127.0.0.1:")); one++) {
		char host[32];

		assert_int_equal(sscanf(one, "%31[^,/]", host), 1);
		assert_non_null(strstr(error, host));
	}
	assert_null(strstr(error, "guest"));
}

static void sender_item_send(struct rabbit_publisher *sender, struct rig *rig, int i)
{
	amqp_basic_properties_t properties = { 0 };

	rabbit_sender_send(sender, "x", "y", &properties, amqp_cstring_bytes("body"),
			   &rig->items[i]);
}

static void test_sender(void **state)
{
	static const enum fake_answer plan[] = { FAKE_ACK, FAKE_RETURN, FAKE_NACK, FAKE_ACK,
						 FAKE_SILENCE };
	static const enum confirm_result results[] = { CONFIRM_DONE, CONFIRM_RETURNED,
						       CONFIRM_NACKED, CONFIRM_DONE };
	char error[RABBIT_ERROR_SIZE] = "";
	struct rabbit_publisher *sender;
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 5);
	sender = rabbit_sender_open(rig.url, &by_tag, &rig, error);
	assert_non_null(sender);
	for (int i = 0; i < 3; i++)
		sender_item_send(sender, &rig, i);
	assert_null(rabbit_sender_wait(sender, WAIT_MS));
	sender_item_send(sender, &rig, 3);
	assert_null(rabbit_sender_wait(sender, WAIT_MS));
	results_expect(&rig, 4, results);
	assert_int_equal(rig.broker.declared, 0);
	sender_item_send(sender, &rig, 4);
	assert_non_null(rabbit_sender_wait(sender, 50));
	rabbit_publisher_close(sender);
	rabbit_publisher_free(sender);
	assert_int_equal(rig.items[4].result, CONFIRM_LOST);
	rig_stop(&rig);
}

/* It does not reconnect, and every item ends. */
static void test_sender_whose_connection_is_lost(void **state)
{
	static const enum fake_answer plan[] = { FAKE_HANG_UP };
	char error[RABBIT_ERROR_SIZE] = "";
	struct rabbit_publisher *sender;
	struct rig rig;

	(void)state;
	rig_start(&rig, plan, 1);
	sender = rabbit_sender_open(rig.url, &by_tag, &rig, error);
	assert_non_null(sender);
	sender_item_send(sender, &rig, 0);
	assert_non_null(rabbit_sender_wait(sender, WAIT_MS));
	sender_item_send(sender, &rig, 1);
	assert_non_null(rabbit_sender_wait(sender, WAIT_MS));
	results_expect(&rig, 2, (enum confirm_result[]){ CONFIRM_LOST, CONFIRM_LOST });
	rabbit_publisher_close(sender);
	rabbit_publisher_free(sender);
	fake_broker_stop(&rig.broker);
	assert_int_equal(rig.broker.connections, 1);
	/* Nothing listens any more. */
	assert_null(rabbit_sender_open(rig.url, &by_tag, &rig, error));
	assert_true(strlen(error) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_confirmed_and_refused),
		cmocka_unit_test(test_one_ack_of_several),
		cmocka_unit_test(test_returned_by_tag),
		cmocka_unit_test(test_returned_by_correlation),
		cmocka_unit_test(test_a_queue_that_refuses_beside_another),
		cmocka_unit_test(test_a_queue_that_accepts_in_between),
		cmocka_unit_test(test_connection_lost),
		cmocka_unit_test(test_blocked_for_a_moment),
		cmocka_unit_test(test_open_items_end_when_it_is_freed),
		cmocka_unit_test(test_frames_that_do_not_belong_together),
		cmocka_unit_test(test_replies_are_consumed_on_the_same_channel),
		cmocka_unit_test(test_a_link_of_two_sources),
		cmocka_unit_test(test_queues_that_differ_for_a_time),
		cmocka_unit_test(test_what_is_bound),
		cmocka_unit_test(test_hosts_of_a_cluster),
		cmocka_unit_test(test_sender),
		cmocka_unit_test(test_sender_whose_connection_is_lost),
	};

	log_init("test", LOG_LEVEL_ERROR, 0);
	return cmocka_run_group_tests_name("rabbit_publisher", tests, NULL, NULL);
}
