/*
 * The core of gateway and worker in a simulation: clients, Redis, RabbitMQ, PostgreSQL and a keeper
 * that fail in every way the design allows for. The promises of the design are checked after every
 * event, and when the storm has ended.
 *
 *	SEED=17 RUNS=1 SIM_STEPS=900 build/tests/sim_promises  one seed, the storm ends at event 900
 *	SEED=1000 RUNS=5000 build/tests/sim_promises           so many from there on
 */
#include "tests/sim/promises.h"

#define STORM_MS 12000
#define CALM_MS 120000 /* the limit for everything to end after the storm */

struct terms {
	int64_t total;
	int limit;
	int64_t begin_ms, end_ms;
};

static void coupon_start(int place)
{
	static const struct terms all[COUPONS - 1] = {
		{ 30, 1, 0, 0 }, { 60, 3, 0, 0 }, { 40, 2, 3000, 10000 }, { 25, 1, 0, 0 }
	};
	const struct terms *terms = &all[place];

	database.coupons[place] = (struct database_coupon){
		.exists = 1,
		.published = 1,
		.total = terms->total,
		.limit = terms->limit - (place == PLACE_STRICT),
	};
	if (place == COUPONS - 2)
		return; /* the keeper will load it */
	database.coupons[place].generation = 1;
	redis.coupons[place] = (struct redis_coupon){
		.present = 1,
		.status = STATUS_OPEN,
		.total = terms->total,
		.stock = terms->total,
		.limit = terms->limit,
		.generation = 1,
		.run_id = 1,
		.begin_ms = terms->begin_ms ? REDIS_EPOCH_MS + terms->begin_ms : 0,
		.end_ms = terms->end_ms ? REDIS_EPOCH_MS + terms->end_ms : 0,
	};
}

static void world_start(uint64_t seed)
{
	sim.seed = seed;
	sim.random = seed * 0x2545f4914f6cdd1du + 1;
	sim.now_ms = 0;
	sim.step = 0;
	sim.heap_n = 0;
	sim.order = 0;
	sim.faults_on = 1;
	memset(sim.rates, 0, sizeof(sim.rates));
	memset(sim.counts, 0, sizeof(sim.counts));
	memset(denied, 0, world.attempts);
	memset(&world, 0, sizeof(world));
	memset(&redis, 0, sizeof(redis));
	memset(&database, 0, sizeof(database));
	truths_n = 0;
	world.stormy = 1;
	redis.up = 1;
	redis.run_id = 1;
	for (int i = 0; i < COUPONS - 1; i++)
		coupon_start(i);
	workers_start();
	memset(&gateway, 0, sizeof(gateway));
	gateway_start();
	resend = resend_new(RESEND_AFTER_MS);
	event_at(0, clients_burst, NULL, 0, 0);
	event_at(sim_between(200, 2000), keeper_turn, NULL, 0, 0);
}

static void world_stop(void)
{
	gateway_die();
	workers_stop();
	resend_free(resend);
	for (int i = 0; i < COUPONS; i++)
		redis_wipe(&redis.coupons[i]);
}

/* Half of the seeds get all faults at a low rate, the others a few faults at a high rate. */
static void storm_brew(void)
{
	static const int rates[] = { 0, 0, 5, 30, 150 };
	int wipe = sim_chance(150);

	for (int i = 0; i < FAULT_COUNT; i++)
		sim.rates[i] = sim.seed % 2 ? 10 : rates[sim_between(0, 4)];
	sim.rates[FAULT_SLOW] /= 10;               /* each stops Redis for seconds */
	world.may_crash = world.may_purge = !wipe; /* two stores lost at once may lose receives */
	for (int64_t n = sim_between(0, 14); n > 0; n--)
		event_at(sim_between(100, STORM_MS), catastrophe, NULL,
			 (uint64_t)sim_between(GATEWAY_CRASH, QUEUE_PURGE),
			 (uint64_t)sim_between(0, 9));
	if (wipe) {
		int64_t at_ms = sim_between(1000, STORM_MS / 2);

		event_at(at_ms - sim_between(0, 300), catastrophe, NULL, LINK_AWAY, 0);
		event_at(at_ms, catastrophe, NULL, REDIS_WIPE, (uint64_t)sim_between(0, 2));
		event_at(at_ms + sim_between(100, 5000), catastrophe, NULL, GATEWAY_CRASH, 0);
	}
	event_in(100, 3000, terms_change, NULL, 0, 0);
}

static uint64_t environment(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

static void world_run(void)
{
	uint64_t storm_steps = environment("SIM_STEPS", UINT64_MAX);
	int64_t calm_at_ms = 0;

	while (world.stormy || !everything_ended()) {
		struct event event = event_take();

		sim.now_ms = event.at_ms;
		sim.step++;
		event.run(event.context, event.a, event.b);
		admission_flush(gateway.admission);
		promises_check();
		if (world.stormy && (sim.now_ms >= STORM_MS || sim.step >= storm_steps)) {
			world.stormy = 0;
			sim.faults_on = 0;
			calm_at_ms = sim.now_ms;
		}
		sim_check(world.stormy || sim.now_ms < calm_at_ms + CALM_MS,
			  "P9: not ended: %zu requests, %zu retries, %zu queued, %zu in outboxes, "
			  "%zu unconfirmed",
			  world.open, world.retries, broker.queued_n, outbox_sum(),
			  admission_unconfirmed(gateway.admission));
	}
	end_check();
}

/*
 * The events that are left when a run ends hold memory, so they are run without checks.
 */
static void events_run_out(void)
{
	while (sim.heap_n > 0) {
		struct event event = event_take();

		if (event.run == call_arrived || event.run == call_replied)
			redis_call_free(event.context);
		else if (event.run == gateway_outcomes_arrive || event.run == outbox_removed ||
			 event.run == receive_looked_up || event.run == message_arrived)
			free(event.context);
		else if (event.run == copy_arrived || event.run == copy_replied)
			copy_free(event.context);
	}
}

static void test_storms(void **state)
{
	uint64_t first = environment("SEED", 1), n = environment("RUNS", 500);
	size_t answers[ANSWER_COUNT] = { 0 }, issued = 0;
	uint64_t steps = 0;

	(void)state;
	sim.sweep = 0;
	sim.name = "storm";
	for (uint64_t seed = first; seed < first + n; seed++) {
		world_start(seed);
		storm_brew();
		world_run();
		steps += sim.step;
		issued += database.rows_n;
		for (int i = 0; i < ANSWER_COUNT; i++)
			answers[i] += world.answers[i];
		world_stop();
		events_run_out();
	}
	print_message("%llu seeds, %llu events, %zu issued; answers:", (unsigned long long)n,
		      (unsigned long long)steps, issued);
	for (int i = 0; i < ANSWER_COUNT; i++)
		if (answers[i])
			print_message(" %s %zu", answer_status((enum answer)i), answers[i]);
	print_message("\n");
}

/* One run with this fault at its `at`-th chance; returns how many chances there were. */
static int sweep_run(int kind, int at, int for_ever)
{
	static char name[64];
	int counted;

	snprintf(name, sizeof(name), "sweep of %s at %d%s", fault_names[kind], at,
		 for_ever ? " for ever" : "");
	sim.name = name;
	sim.sweep = kind + 1;
	sim.sweep_at = at;
	sim.sweep_for_ever = for_ever;
	world_start(7);
	if (kind == FAULT_DEAD)
		for (int i = 0; i < 4; i++)
			event_at(500 + i * 700, catastrophe, NULL, ODD_MESSAGE, 0);
	world.may_crash = 1;
	world_run();
	counted = sim.counts[kind];
	sim_check(counted > 0, "the place was never reached");
	world_stop();
	events_run_out();
	return counted;
}

/*
 * Each fault alone: at its N-th chance, once, and in another run from then on until the storm ends.
 */
static void test_sweep(void **state)
{
	(void)state;
	for (int kind = 0; kind < FAULT_COUNT; kind++)
		for (int for_ever = 0; for_ever < 2; for_ever++)
			for (int at = 1; at <= 4096; at = at < 8 ? at + 1 : at * 2)
				if (sweep_run(kind, at, for_ever) < at)
					break;
	sim.sweep = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storms),
		cmocka_unit_test(test_sweep),
	};

	return cmocka_run_group_tests_name("promises", tests, NULL, NULL);
}
