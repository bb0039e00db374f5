/*
 * What one Redis decides for several gateways: their real admission and bundles (gateway/admit),
 * with a clock of their own, and instead of Redis its costs. So it shows how calls grow with the
 * load, and where one thread of Redis ends, for more gateways than this machine has cores.
 *
 *	build/tests/sim_capacity               the tests
 *	build/tests/sim_capacity NAME=NUMBER   one run, by the names of `options`; prints JSON
 *
 * Requests come at random times, whatever the answers do. A gateway is one thread: in a turn it
 * takes what has come, requests and replies, and then sends. Redis is one thread: in a turn it
 * takes one command of each connection, syncs its log once, and replies.
 */
#include "common/check.h"
#include "common/clock.h"
#include "gateway/admit/redis_pool.h"
#include "coupon/copies.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUPONS_MAX 65536
#define GATEWAYS_MAX 64
#define LINKS_MAX 16
#define WAKE_US 5000 /* as PAUSE_MS of redis_pool.c */

struct options {
	double coupons, stock; /* the stock of each coupon */
	double rate;           /* requests a second, of all */
	double gateways;       /* processes */
	double ms;             /* how long requests come; the first fifth is not measured */
	double call_us;        /* of Redis for each command, */
	double part_us;        /* for each coupon in it, */
	double request_us;     /* for each request, */
	double sync_us;        /* and for each turn that wrote */
	double gateway_us;     /* of a gateway for a request */
	double network_us;     /* one way */
	double seed;
};

static const struct options options_default = {
	.coupons = 1,
	.stock = 1e9,
	.rate = 1e5,
	.gateways = 4,
	.ms = 100,
	.call_us = 10,
	.part_us = 10,
	.request_us = 2,
	.sync_us = 100,
	.gateway_us = 2,
	.network_us = 50,
	.seed = 1,
};

struct outcome {
	size_t asked, answered, accepted, busy; /* in all; the others of what is measured */
	double answers_per_s, accepted_per_s, calls_per_s;
	double requests_per_call, parts_per_call;
	double redis_share; /* of a core: without the syncs, for which it waits */
	double p50_ms, p99_ms;
};

struct command {
	STAILQ_ENTRY(command) next;
	struct redis_link *link;
	redis_done_fn *done;
	struct bundle *bundle;
	double at;                      /* when it, and later its reply, is there */
	size_t taken[BUNDLE_CALLS_MAX]; /* of each call, from its first request on */
};

STAILQ_HEAD(command_list, command);

struct redis_link {
	struct gateway *gateway;
	size_t in_flight;
	struct command_list unsent, queued;
};

/* All times are microseconds. */
struct gateway {
	struct redis_pool *pool; /* lives on: the next run uses it */
	struct redis_link links[LINKS_MAX];
	size_t links_n;
	struct admission *admission;
	struct copies *copies;
	struct command_list replies;
	double arrival; /* of the next request */
	double turn;    /* the next one */
	double free;    /* the end of the last turn */
};

struct client {
	struct gateway *gateway;
	struct responder responder;
	double came;
	struct request request; /* and its text */
};

static struct {
	struct options options;
	struct config config;
	struct outcome outcome;
	size_t gateways_n;
	double now, measured_from, end;
	double redis_turn, redis_free, redis_busy;
	double *stock;
	double *waits; /* of each answer that is measured */
	size_t waits_n, waits_max;
	size_t commands, parts, requests; /* that are measured */
	uint64_t random;
} world;

static struct gateway gateways[GATEWAYS_MAX];
static struct gateway *connecting; /* whose connections are made */

/* Instead of common/clock.c */

int64_t clock_monotonic_us(void)
{
	return (int64_t)world.now + 1000000;
}

int64_t clock_monotonic_ms(void)
{
	return clock_monotonic_us() / 1000;
}

int64_t clock_wall_ms(void)
{
	return clock_monotonic_ms();
}

char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
	snprintf(out, CLOCK_RFC3339_SIZE, "%lld ms", (long long)wall_ms);
	return out;
}

static uint64_t random_next(void)
{
	uint64_t z = world.random += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Times between requests that do not know of each other. */
static double random_pause(double mean)
{
	return -log(((double)(random_next() >> 11) + 1) / 9007199254740993.0) * mean;
}

static int is_measured(void)
{
	return world.now >= world.measured_from && world.now < world.end;
}

/* Redis has a turn for the next command of this connection. */
static void redis_wake(const struct redis_link *link)
{
	const struct command *command = STAILQ_FIRST(&link->queued);

	if (command)
		world.redis_turn = fmin(world.redis_turn, fmax(command->at, world.redis_free));
}

/* Instead of gateway/admit/redis_link.c, all of it: else the linker takes both. */

struct redis_link *redis_link_new(const struct redis_link_options *options)
{
	struct gateway *gateway = connecting;
	struct redis_link *link = &gateway->links[gateway->links_n++];

	(void)options;
	*link = (struct redis_link){ .gateway = gateway };
	STAILQ_INIT(&link->unsent);
	STAILQ_INIT(&link->queued);
	return link;
}

int redis_link_command(struct redis_link *link, int argc, const char **argv, const size_t *lengths,
		       redis_done_fn *done, void *context)
{
	struct command *command = checked(calloc(1, sizeof(*command)));

	(void)argc;
	(void)argv;
	(void)lengths;
	command->link = link;
	command->done = done;
	command->bundle = context;
	STAILQ_INSERT_TAIL(&link->unsent, command, next);
	link->in_flight++;
	return 0;
}

int redis_link_flush(struct redis_link *link)
{
	struct command *command;

	if (STAILQ_EMPTY(&link->unsent))
		return 0;
	STAILQ_FOREACH (command, &link->unsent, next)
		command->at = world.now + world.options.network_us;
	STAILQ_CONCAT(&link->queued, &link->unsent);
	redis_wake(link);
	return 1;
}

size_t redis_link_in_flight(const struct redis_link *link)
{
	return link->in_flight;
}

const struct redis_handshake *redis_link_handshake(const struct redis_link *link)
{
	static const struct redis_handshake handshake = {
		.run_id = "0123456789abcdef0123456789abcdef01234567",
		.lease_argument = "0123456789abcdef0123456789abcdef01234567",
		.sha = "0123456789abcdef0123456789abcdef01234567",
	};

	(void)link;
	return &handshake;
}

const char *redis_link_trouble(const struct redis_link *link)
{
	(void)link;
	return NULL;
}

const char *redis_link_issue_trouble(const struct redis_link *link)
{
	return redis_link_trouble(link);
}

uint64_t redis_link_connects(const struct redis_link *link)
{
	(void)link;
	return 1;
}

void redis_link_process_read(struct redis_link *link)
{
	(void)link;
}

void redis_link_script_load(struct redis_link *link)
{
	(void)link;
}

/* Redis */

/* Decides a command; returns its cost, and adds what it took. */
static double command_run(struct command *command, size_t *taken)
{
	const struct options *options = &world.options;
	const struct call *call;
	double cost = options->call_us;
	size_t i = 0;

	STAILQ_FOREACH (call, &command->bundle->calls, next) {
		double *stock = &world.stock[call->coupon_id - 1];

		command->taken[i] = (size_t)fmin(*stock, (double)call->requests_n);
		*stock -= (double)command->taken[i];
		*taken += command->taken[i++];
		cost += options->part_us + (double)call->requests_n * options->request_us;
		world.requests += is_measured() ? call->requests_n : 0;
	}
	world.commands += (size_t)is_measured();
	world.parts += is_measured() ? i : 0;
	return cost;
}

static struct command *command_next(struct redis_link *link)
{
	struct command *command = STAILQ_FIRST(&link->queued);

	if (!command || command->at > world.now)
		return NULL;
	STAILQ_REMOVE_HEAD(&link->queued, next);
	return command;
}

static void redis_take(void)
{
	struct command *command, *served[GATEWAYS_MAX * LINKS_MAX];
	double cost = 0;
	size_t n = 0, taken = 0;

	world.redis_turn = INFINITY;
	for (size_t g = 0; g < world.gateways_n; g++)
		for (size_t i = 0; i < gateways[g].links_n; i++)
			if ((command = command_next(&gateways[g].links[i]))) {
				cost += command_run(command, &taken);
				served[n++] = command;
			}
	world.redis_busy += is_measured() ? cost : 0;
	world.redis_free = world.now + cost + (taken > 0 ? world.options.sync_us : 0);
	for (size_t i = 0; i < n; i++) {
		struct gateway *gateway = served[i]->link->gateway;

		served[i]->at = world.redis_free + world.options.network_us;
		STAILQ_INSERT_TAIL(&gateway->replies, served[i], next);
		gateway->turn = fmin(gateway->turn, fmax(gateway->free, served[i]->at));
	}
	for (size_t g = 0; g < world.gateways_n; g++)
		for (size_t i = 0; i < gateways[g].links_n; i++)
			redis_wake(&gateways[g].links[i]);
}

#define REPLY_HEAD 7

/* What lua/issue.lua returns for a call of so many requests. */
static void call_reply_make(redisReply *reply, redisReply **elements, size_t requests, size_t taken)
{
	static char ok_text[] = "ok", message_text[] = "{}";
	static redisReply one = { .type = REDIS_REPLY_INTEGER, .integer = 1 };
	static redisReply none = { .type = REDIS_REPLY_INTEGER };
	static redisReply refused = { .type = REDIS_REPLY_INTEGER };
	static redisReply ok = { .type = REDIS_REPLY_STRING, .str = ok_text, .len = 2 };
	static redisReply no_message = { .type = REDIS_REPLY_STRING, .str = message_text };
	static redisReply message = { .type = REDIS_REPLY_STRING, .str = message_text, .len = 2 };
	redisReply *const head[REPLY_HEAD] = {
		&ok, &one, &one, &one, &one, &none, taken > 0 ? &message : &no_message
	};

	refused.integer = -answer_code(ANSWER_OUT_OF_STOCK);
	memcpy(elements, head, sizeof(head));
	for (size_t i = 0; i < requests; i++)
		elements[REPLY_HEAD + i] = i < taken ? &one : &refused;
	*reply = (redisReply){ .type = REDIS_REPLY_ARRAY,
			       .elements = REPLY_HEAD + requests,
			       .element = elements };
}

static void command_reply(struct command *command)
{
	static redisReply replies[BUNDLE_CALLS_MAX], *calls[BUNDLE_CALLS_MAX];
	static redisReply *elements[BUNDLE_CALLS_MAX * REPLY_HEAD + BUNDLE_REQUESTS_MAX];
	redisReply reply = { .type = REDIS_REPLY_ARRAY, .element = calls };
	redisReply **next = elements;
	const struct call *call;

	STAILQ_FOREACH (call, &command->bundle->calls, next) {
		size_t i = reply.elements++;

		calls[i] = &replies[i];
		call_reply_make(calls[i], next, call->requests_n, command->taken[i]);
		next += calls[i]->elements;
	}
	command->link->in_flight--;
	command->done(command->bundle, &reply);
	free(command);
}

/* The ports of admission */

static void port_ulid_new(struct ulid *ulid)
{
	uint64_t words[2] = { random_next(), random_next() };

	memcpy(ulid, words, sizeof(*ulid));
}

/* RabbitMQ confirms at once. */
static void port_publish(struct publisher *publisher, struct batch *batch)
{
	struct gateway *gateway = (struct gateway *)(void *)publisher;

	admission_confirmed(gateway->admission, batch);
	free(batch);
}

/* Its client has it at the end of the gateway's turn. */
static void port_answer(void *answering, struct request *request, const struct result *result)
{
	struct gateway *gateway = answering;
	struct client *client = (struct client *)(void *)((char *)request -
							  offsetof(struct client, request));

	assert_ptr_equal(client->gateway, gateway);
	world.outcome.answered++;
	world.outcome.accepted += result->answer == ANSWER_OK;
	world.outcome.busy += result->answer == ANSWER_BUSY;
	if (is_measured()) {
		world.outcome.answers_per_s++;
		world.outcome.accepted_per_s += result->answer == ANSWER_OK;
		if (world.waits_n < world.waits_max)
			world.waits[world.waits_n++] = gateway->free - client->came;
	}
	free(client);
}

static void port_look_up(void *lookup, int64_t coupon)
{
	(void)lookup;
	fail_msg("Redis holds coupon %lld", (long long)coupon);
}

static void port_ask(struct redis_pool *redis, int64_t coupon)
{
	(void)redis;
	port_look_up(NULL, coupon);
}

static void port_report(struct presence *presence, int64_t coupon, int64_t generation, int64_t seq,
			int is_recent)
{
	(void)presence;
	(void)generation;
	(void)seq;
	(void)is_recent;
	port_look_up(NULL, coupon);
}

static void port_busy(int64_t coupon, int busy)
{
	(void)coupon;
	(void)busy;
}

static void port_doubt(int64_t coupon, int64_t until_ms)
{
	(void)until_ms;
	port_look_up(NULL, coupon);
}

/* A gateway */

static double arrival_pause(void)
{
	return random_pause(1e6 * (double)world.gateways_n / world.options.rate);
}

static void gateway_start(struct gateway *gateway, struct event_base *base)
{
	struct admission_port port = {
		.now_ms = clock_monotonic_ms,
		.ulid_new = port_ulid_new,
		.room = redis_pool_room,
		.send = redis_pool_send,
		.look_up = port_look_up,
		.publish = port_publish,
		.answer = port_answer,
		.report = port_report,
		.ask = port_ask,
		.busy = port_busy,
		.doubt = port_doubt,
		.publisher = (struct publisher *)(void *)gateway,
		.answering = gateway,
	};

	static const struct copies_port copies_port = { .now_ms = clock_monotonic_ms };

	STAILQ_INIT(&gateway->replies);
	connecting = gateway;
	if (!gateway->pool)
		gateway->pool = redis_pool_new(base, &world.config);
	port.redis = gateway->pool;
	gateway->copies = copies_new(&copies_port);
	gateway->admission = admission_new(&port, &world.config, COUPONS_MAX, NULL,
					   gateway->copies);
	redis_pool_bind(gateway->pool, gateway->admission);
	gateway->free = 0;
	gateway->turn = gateway->arrival = arrival_pause();
}

static void request_arrive(struct gateway *gateway)
{
	static int64_t users;
	struct client *client = checked(calloc(1, sizeof(*client) + 4));

	client->gateway = gateway;
	client->came = gateway->arrival;
	client->request.responder = &client->responder;
	client->request.op = OP_ISSUE;
	client->request.coupon = 1 + (int64_t)(random_next() % (uint64_t)world.options.coupons);
	client->request.user = user_id_of_number(++users);
	world.outcome.asked++;
	gateway->arrival += arrival_pause();
	if (gateway->arrival >= world.end)
		gateway->arrival = INFINITY;
	gateway->free += world.options.gateway_us;
	admission_submit(gateway->admission, &client->request);
}

static void gateway_take(struct gateway *gateway)
{
	struct command *command;

	gateway->free = world.now;
	while ((command = STAILQ_FIRST(&gateway->replies)) && command->at <= world.now) {
		STAILQ_REMOVE_HEAD(&gateway->replies, next);
		command_reply(command);
	}
	while (gateway->arrival <= world.now)
		request_arrive(gateway);
	world.now = gateway->free;
	admission_flush(gateway->admission);
	redis_pool_flush(gateway->pool);
	gateway->turn = fmax(gateway->free, gateway->arrival);
	if ((command = STAILQ_FIRST(&gateway->replies)))
		gateway->turn = fmin(gateway->turn, fmax(gateway->free, command->at));
	gateway->turn = fmin(gateway->turn, gateway->free + WAKE_US);
}

/* The world */

static void world_start(const struct options *options)
{
	static char name[] = "sim_capacity";
	char *argv[] = { name, NULL };

	memset(&world, 0, sizeof(world));
	world.options = *options;
	world.random = (uint64_t)options->seed;
	world.end = options->ms * 1000;
	world.measured_from = world.end / 5;
	world.redis_turn = INFINITY;
	world.waits_max = (size_t)(options->rate * options->ms / 1000 * 1.1) + 1000;
	world.waits = checked(calloc(world.waits_max, sizeof(*world.waits)));
	world.stock = checked(calloc(COUPONS_MAX, sizeof(*world.stock)));
	for (size_t i = 0; i < COUPONS_MAX; i++)
		world.stock[i] = options->stock;
	world.gateways_n = (size_t)options->gateways;
	config_read(&world.config, CONFIG_GATEWAY, 1, argv, NULL);
}

/* The gateway whose turn is next. */
static struct gateway *gateway_next(void)
{
	struct gateway *next = &gateways[0];

	for (size_t i = 1; i < world.gateways_n; i++)
		if (gateways[i].turn < next->turn)
			next = &gateways[i];
	return next;
}

static int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double wait_ms(double share)
{
	size_t at = (size_t)((double)world.waits_n * share);

	return world.waits_n > 0 ? world.waits[at < world.waits_n ? at : at - 1] / 1000 : 0;
}

static void outcome_take(struct outcome *outcome)
{
	double measured_s = (world.end - world.measured_from) / 1e6;
	double commands = fmax((double)world.commands, 1);

	qsort(world.waits, world.waits_n, sizeof(*world.waits), double_compare);
	*outcome = world.outcome;
	outcome->answers_per_s /= measured_s;
	outcome->accepted_per_s /= measured_s;
	outcome->calls_per_s = (double)world.commands / measured_s;
	outcome->requests_per_call = (double)world.requests / commands;
	outcome->parts_per_call = (double)world.parts / commands;
	outcome->redis_share = world.redis_busy / 1e6 / measured_s;
	outcome->p50_ms = wait_ms(0.5);
	outcome->p99_ms = wait_ms(0.99);
}

static void world_run(const struct options *options, struct outcome *outcome)
{
	static struct event_base *base; /* its loop never runs */

	if (!base)
		base = checked(event_base_new());
	world_start(options);
	for (size_t i = 0; i < world.gateways_n; i++)
		gateway_start(&gateways[i], base);
	for (;;) {
		struct gateway *gateway = gateway_next();

		world.now = fmin(gateway->turn, world.redis_turn);
		if (world.now >= world.end && world.outcome.answered == world.outcome.asked)
			break;
		if (world.redis_turn <= gateway->turn)
			redis_take();
		else
			gateway_take(gateway);
	}
	outcome_take(outcome);
	for (size_t i = 0; i < world.gateways_n; i++) {
		admission_free(gateways[i].admission);
		copies_free(gateways[i].copies);
	}
	config_free(&world.config);
	free(world.waits);
	free(world.stock);
}

/* Tests */

static void test_each_is_answered_once(void **state)
{
	struct options options = options_default;
	struct outcome outcome;

	(void)state;
	options.coupons = 3;
	options.stock = 500;
	world_run(&options, &outcome);
	assert_true(outcome.asked > 9000 && outcome.answered == outcome.asked);
	assert_int_equal(outcome.accepted, 1500);
	assert_int_equal(outcome.busy, 0);
}

static void test_the_same_seed_is_the_same_run(void **state)
{
	struct options options = options_default;
	struct outcome first, second;

	(void)state;
	options.coupons = 1000;
	world_run(&options, &first);
	world_run(&options, &second);
	assert_memory_equal(&first, &second, sizeof(first));
}

/* What one command of 256 requests costs is the limit, and nearly all have as many. */
static void test_calls_grow_until_redis_is_full(void **state)
{
	struct options options = options_default;
	struct outcome calm, full;

	(void)state;
	options.rate = 1000;
	options.ms = 1000;
	world_run(&options, &calm);
	assert_true(calm.requests_per_call < 1.5 && calm.redis_share < 0.2);
	options.rate = 1e6;
	options.gateways = 16;
	options.gateway_us = 0.1;
	options.ms = 200;
	world_run(&options, &full);
	assert_true(full.requests_per_call > 200 && full.redis_share > 0.85);
	assert_true(full.accepted_per_s > 0.8e6 / (2 + 20. / 256));
}

/* Each process asks once in COUPON_MEMORY_MS for a coupon that is sold out, with what has come. */
static void test_a_sold_out_coupon_costs_redis_little(void **state)
{
	struct options options = options_default;
	struct outcome outcome;

	(void)state;
	options.stock = 1000;
	options.ms = 1000;
	world_run(&options, &outcome);
	assert_int_equal(outcome.accepted, 1000);
	assert_true(outcome.answers_per_s > 0.97 * options.rate);
	assert_true(outcome.calls_per_s < options.gateways * 10 * 10);
}

/* One run */

static void option_set(struct options *options, const char *word)
{
	static const struct {
		const char *name;
		size_t at;
	} names[] = {
#define OPTION(name) { #name, offsetof(struct options, name) }
		OPTION(coupons), OPTION(stock),      OPTION(rate),       OPTION(gateways),
		OPTION(ms),      OPTION(call_us),    OPTION(part_us),    OPTION(request_us),
		OPTION(sync_us), OPTION(gateway_us), OPTION(network_us), OPTION(seed),
	};
	size_t len = strcspn(word, "=");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i].name) == len && memcmp(names[i].name, word, len) == 0 &&
		    word[len]) {
			*(double *)(void *)((char *)options + names[i].at) = atof(word + len + 1);
			return;
		}
	fprintf(stderr, "sim_capacity: %s is no NAME=NUMBER of its options\n", word);
	exit(2);
}

static void outcome_print(const struct outcome *outcome)
{
	printf("{\"asked\":%zu,\"answered\":%zu,\"accepted\":%zu,\"busy\":%zu,"
	       "\"answers_per_s\":%.0f,\"accepted_per_s\":%.0f,\"calls_per_s\":%.0f,"
	       "\"requests_per_call\":%.2f,\"parts_per_call\":%.2f,\"redis_share\":%.3f,"
	       "\"p50_ms\":%.2f,\"p99_ms\":%.2f}\n",
	       outcome->asked, outcome->answered, outcome->accepted, outcome->busy,
	       outcome->answers_per_s, outcome->accepted_per_s, outcome->calls_per_s,
	       outcome->requests_per_call, outcome->parts_per_call, outcome->redis_share,
	       outcome->p50_ms, outcome->p99_ms);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_is_answered_once),
		cmocka_unit_test(test_the_same_seed_is_the_same_run),
		cmocka_unit_test(test_calls_grow_until_redis_is_full),
		cmocka_unit_test(test_a_sold_out_coupon_costs_redis_little),
	};
	struct options options = options_default;
	struct outcome outcome;

	if (argc == 1)
		return cmocka_run_group_tests_name("capacity", tests, NULL, NULL);
	for (int i = 1; i < argc; i++)
		option_set(&options, argv[i]);
	check(options.coupons >= 1 && options.coupons <= COUPONS_MAX && options.gateways >= 1 &&
	      options.gateways <= GATEWAYS_MAX);
	world_run(&options, &outcome);
	outcome_print(&outcome);
	return 0;
}
