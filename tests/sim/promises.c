/*
 * The core of gateway and worker in a simulation: clients, Redis, RabbitMQ, PostgreSQL and a keeper
 * that fail in every way the design allows for. The promises of the design are checked after every
 * event, and when the storm has ended.
 *
 *	SIM_SEED=17 SIM_STEPS=900 build/tests/sim_promises  one seed, the storm ends at event 900
 *	SIM_SEEDS=5000 build/tests/sim_promises             more of them
 */
#include "tests/sim/rig_gateway.h"

#define STORM_MS 12000
#define CALM_MS 120000 /* the limit for everything to end after the storm */
#define INTENTS_MAX 4096
#define USERS 40
#define RETRIES_MAX 8
#define RESEND_AFTER_MS 3000
/* PostgreSQL allows a user less of this coupon than Redis: some receives are rejected */
#define PLACE_STRICT 2

/* A purchase of a client, over all its attempts. */
struct intent {
	int64_t coupon, user;
	char key[RECEIVE_KEY_MAX + 1];
	enum request_ack ack;
	int tries;
	int known; /* `receive` was answered */
	struct receive receive;
};

struct client {
	struct intent *intent;
	size_t attempt; /* its number among all requests */
	int sent, answered;
	int64_t submitted_ms;
	struct request request; /* and its text */
};

static struct {
	struct intent intents[INTENTS_MAX];
	size_t intents_n;
	size_t attempts;
	size_t open;            /* requests not answered */
	size_t unsent[COUPONS]; /* of them, those in no call yet */
	size_t retries;         /* not yet sent */
	size_t answers[ANSWER_COUNT];
	size_t rows_checked;
	int wiped[COUPONS];
	int stormy;
	int may_crash; /* the gateway */
	size_t odd_sent;
} world;

static struct client *client_of(struct request *request)
{
	return (struct client *)(void *)((char *)request - offsetof(struct client, request));
}

/* Clients */

static void client_submit(struct intent *intent)
{
	size_t key_len = strlen(intent->key);
	struct client *client = calloc(1, sizeof(*client) + key_len + 2);

	client->intent = intent;
	client->submitted_ms = sim.now_ms;
	client->attempt = world.attempts++;
	assert_true(world.attempts < ATTEMPTS_MAX);
	client->request.op = OP_ISSUE;
	client->request.coupon = intent->coupon;
	client->request.user = intent->user;
	client->request.ack = intent->ack;
	client->request.key_len = key_len;
	memcpy(client->request.text + 1, intent->key, key_len + 1);
	intent->tries++;
	world.open++;
	world.unsent[intent->coupon - COUPON_FIRST]++;
	admission_submit(gateway.admission, &client->request);
}

static void client_retry(void *context, uint64_t a, uint64_t b)
{
	(void)a;
	(void)b;
	world.retries--;
	client_submit(context);
}

static size_t client_sent(struct request *request)
{
	sim_check(client_of(request)->sent++ == 0, "P7: a request went out in two calls");
	world.unsent[request->coupon - COUPON_FIRST]--;
	return client_of(request)->attempt;
}

/* A losing answer without a call comes from the memory, which has its limits. */
static void memory_check(const struct client *client, enum answer answer)
{
	size_t place = (size_t)(client->request.coupon - COUPON_FIRST);

	if (client->sent || answer == ANSWER_BUSY || answer == ANSWER_UNAVAILABLE ||
	    answer == ANSWER_UNKNOWN)
		return;
	sim_check(client->request.key_len == 0, "a remembered answer to a request with a key");
	sim_check(sim.now_ms - gateway.told_ms[place][answer] < MEMORY_MS,
		  "%s was remembered for %lld ms", answer_status(answer),
		  (long long)(sim.now_ms - gateway.told_ms[place][answer]));
	if (answer == ANSWER_NOT_STARTED && redis.coupons[place].present)
		sim_check(redis_now_ms() < redis.coupons[place].begin_ms,
			  "not_started was remembered past the beginning");
}

static void receive_check(struct client *client, const struct result *result)
{
	struct intent *intent = client->intent;
	struct truth *truth = truth_find(&result->receive);

	sim_check(result->receive.coupon == intent->coupon && result->receive.user == intent->user,
		  "the receive of another user");
	sim_check(truth && truth->slot == result->slot,
		  "P5: a receive or slot that Redis never gave");
	sim_check(strcmp(truth->key, intent->key) == 0, "a receive with another key");
	sim_check(*intent->key || !truth->answered,
		  "two requests were answered with the same receive");
	truth->answered = 1;
	if (!*intent->key)
		return;
	sim_check(!intent->known || receive_same(&intent->receive, &result->receive),
		  "P6: a key gave two receives");
	intent->known = 1;
	intent->receive = result->receive;
}

/* Any other answer promises that nothing was done, and will not be done later. */
static void denial_check(const struct client *client, enum answer answer)
{
	if (answer == ANSWER_OK || answer == ANSWER_UNKNOWN || answer == ANSWER_REJECTED)
		return;
	denied[client->attempt] = 1;
	for (size_t i = 0; i < truths_n; i++)
		sim_check(truths[i].attempt != client->attempt, "P7: answered %s, but it was done",
			  answer_status(answer));
}

static void outcome_check(const struct result *result)
{
	if (result->answer == ANSWER_OK && result->reached == ACK_ISSUED)
		sim_check(row_issued(&result->receive) != NULL, "answered issued, but it is not");
	if (result->answer == ANSWER_REJECTED)
		sim_check(row_rejected(&result->receive) != NULL,
			  "answered rejected, but it is not");
}

static void client_answered(struct request *request, const struct result *result)
{
	struct client *client = client_of(request);
	struct result seen = *result;

	sim_check(client->answered++ == 0, "answered twice");
	if (gateway.dying)
		seen = (struct result){ .answer = ANSWER_UNKNOWN };
	else
		memory_check(client, seen.answer);
	sim_check(sim.now_ms - client->submitted_ms <= 20000, "P9: answered after %lld ms",
		  (long long)(sim.now_ms - client->submitted_ms));
	sim_check(seen.answer != ANSWER_OK || (seen.slot > 0 && seen.reached >= request->ack),
		  "reached less than was requested");
	if (seen.slot)
		receive_check(client, &seen);
	denial_check(client, seen.answer);
	outcome_check(&seen);
	world.answers[seen.answer]++;
	world.open--;
	world.unsent[request->coupon - COUPON_FIRST] -= !client->sent;
	if ((seen.answer == ANSWER_UNKNOWN || seen.answer == ANSWER_BUSY ||
	     seen.answer == ANSWER_UNAVAILABLE) &&
	    *client->intent->key && client->intent->tries < RETRIES_MAX) {
		world.retries++;
		event_in(20, 2000, client_retry, client->intent, 0, 0);
	}
	free(client);
}

static void clients_burst(void *context, uint64_t a, uint64_t b)
{
	(void)context;
	(void)a;
	(void)b;
	if (!world.stormy)
		return;
	for (int64_t n = sim_chance(50) ? sim_between(20, 150) : sim_between(1, 4);
	     n > 0 && world.intents_n < INTENTS_MAX; n--) {
		struct intent *intent = &world.intents[world.intents_n++];

		*intent = (struct intent){ .coupon = COUPON_FIRST + sim_between(0, COUPONS - 1),
					   .user = sim_between(1, USERS) };
		intent->ack = (enum request_ack)sim_between(0, 2);
		if (sim_chance(500))
			snprintf(intent->key, sizeof(intent->key), "key-%zu", world.intents_n);
		client_submit(intent);
		if (*intent->key && sim_chance(100)) /* an impatient client */
			client_submit(intent);
	}
	event_in(1, 60, clients_burst, NULL, 0, 0);
}

/* The keeper: loads, verifies, sends what is left in the outbox. */

static void keeper_resend(struct redis_coupon *coupon)
{
	for (size_t i = coupon->outbox_n; i-- > 0;) {
		const struct outbox_entry *entry = &coupon->outbox[i];

		if (redis_now_ms() - entry->at_ms < RESEND_AFTER_MS)
			continue;
		broker_enqueue(MESSAGE_RECEIVES, entry->body, entry->len, 0);
		if (fault(FAULT_KEEPER))
			return;
		outbox_remove(coupon, &entry->batch);
	}
}

static void keeper_turn(void *context, uint64_t a, uint64_t b)
{
	(void)context;
	(void)a;
	(void)b;
	for (int i = 0; i < COUPONS && redis.up; i++) {
		struct redis_coupon *coupon = &redis.coupons[i];
		struct database_coupon *row = &database.coupons[i];

		if (row->published && row->generation == 0) {
			row->generation = 1;
			*coupon = (struct redis_coupon){ .present = 1,
							 .status = STATUS_OPEN,
							 .total = row->total,
							 .stock = row->total,
							 .limit = row->limit,
							 .generation = 1,
							 .run_id = redis.run_id };
		}
		if (!coupon->present)
			continue;
		if (coupon->run_id != redis.run_id && coupon->generation == row->generation &&
		    coupon->seq >= row->seq_seen)
			coupon->run_id = redis.run_id;
		keeper_resend(coupon);
	}
	event_in(300, 700, keeper_turn, NULL, 0, 0);
}

/* Operators */

static void terms_change(void *context, uint64_t a, uint64_t b)
{
	int place = (int)sim_between(0, 2);
	struct redis_coupon *coupon = &redis.coupons[place];

	(void)context;
	(void)a;
	(void)b;
	if (!world.stormy)
		return;
	if (sim_chance(300)) {
		database.coupons[place].total += 5;
		if (coupon->present) {
			coupon->total += 5;
			coupon->stock += 5;
		}
	} else if (coupon->present) {
		coupon->status = coupon->status == STATUS_OPEN ? STATUS_PAUSED : STATUS_OPEN;
	}
	event_in(200, 3000, terms_change, NULL, 0, 0);
}

/* Catastrophes */

static void redis_back(void *context, uint64_t a, uint64_t b)
{
	(void)context;
	(void)a;
	(void)b;
	redis.up = 1;
}

enum catastrophe {
	GATEWAY_CRASH,
	REDIS_RESTART,
	WORKER_CRASH,
	WORKER_CUT,
	LINK_CUT,
	REDIS_CUT,
	ODD_MESSAGE,
	REDIS_WIPE
};

static void odd_message(void)
{
	static const char poison[] = "{\"v\":1,\"batch\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"coupon\":"
				     "\"666\",\"generation\":1,\"seq\":1,"
				     "\"at\":5,\"receives\":[[\"1\",1,\"\"]]}";
	int garbage = sim_chance(500);

	world.odd_sent++;
	broker_enqueue(garbage ? MESSAGE_GARBAGE : MESSAGE_POISON, poison,
		       garbage ? 40 : sizeof(poison) - 1, 0);
}

static void catastrophe(void *context, uint64_t kind, uint64_t place)
{
	(void)context;
	if (!world.stormy)
		return;
	switch ((enum catastrophe)kind) {
	case GATEWAY_CRASH:
		if (!world.may_crash)
			return;
		gateway_die();
		gateway_start();
		return;
	case REDIS_RESTART:
		redis.up = 0;
		redis.run_id++;
		redis_connection_cut();
		event_in(50, 1500, redis_back, NULL, 0, 0);
		return;
	case WORKER_CRASH:
		worker_crash(&workers[place % WORKERS]);
		return;
	case WORKER_CUT:
		worker_connection_cut(&workers[place % WORKERS]);
		return;
	case LINK_CUT:
		link_cut();
		return;
	case REDIS_CUT:
		redis_connection_cut();
		return;
	case ODD_MESSAGE:
		odd_message();
		return;
	/*
	 * then PostgreSQL alone must keep P1 and P2, and nothing that the gateway holds is lost
	 */
	case REDIS_WIPE:
		world.wiped[place % COUPONS] = 1;
		redis_wipe(&redis.coupons[place % COUPONS]);
		return;
	}
}

/* The promises, after every event */

static void promises_of_redis(void)
{
	for (int i = 0; i < COUPONS; i++) {
		const struct redis_coupon *coupon = &redis.coupons[i];

		sim_check(!coupon->present ||
				  (coupon->stock >= 0 &&
				   coupon->stock + (int64_t)coupon->records_n == coupon->total),
			  "P4: stock %lld and %zu taken slots of %lld", (long long)coupon->stock,
			  coupon->records_n, (long long)coupon->total);
	}
}

static void promises_of_database(void)
{
	for (; world.rows_checked < database.rows_n; world.rows_checked++) {
		const struct row *row = &database.rows[world.rows_checked];
		const struct database_coupon *coupon = database_coupon(row->receive.coupon);
		struct truth *truth = truth_find(&row->receive);
		int64_t rows = 0, of_user = 0;

		sim_check(truth && truth->slot == row->slot,
			  "P5: a coupon that was given to no user");
		for (size_t i = 0; i < database.rows_n; i++) {
			rows += database.rows[i].receive.coupon == row->receive.coupon;
			of_user += database.rows[i].receive.coupon == row->receive.coupon &&
				   database.rows[i].receive.user == row->receive.user;
		}
		sim_check(rows == coupon->issued && rows <= coupon->total, "P1: %lld rows of %lld",
			  (long long)rows, (long long)coupon->total);
		sim_check(of_user <= coupon->limit, "P2: a user has %lld of %d", (long long)of_user,
			  coupon->limit);
	}
}

static void promises_of_gateway(void)
{
	size_t held = 0, calls[COUPONS] = { 0 }, calls_n = 0, open[COUPONS];

	memcpy(open, world.unsent, sizeof(open));

	for (const struct redis_call *call = gateway.oldest; call; call = call->newer) {
		if (!call->call)
			continue;
		calls_n++;
		open[call->coupon - COUPON_FIRST] += call->n;
		sim_check(call->n <= 16 && ++calls[call->coupon - COUPON_FIRST] <= 2,
			  "P9: a call too large, or too many");
	}
	sim_check(calls_n == admission_calls(gateway.admission),
		  "calls in flight: %zu, counted %zu", calls_n, admission_calls(gateway.admission));
	for (int i = 0; i < COUPONS; i++) {
		held += gateway.held[i];
		sim_check(open[i] + gateway.held[i] <= UNCONFIRMED_PER_COUPON_MAX,
			  "P9: %zu receives of one coupon are open", open[i] + gateway.held[i]);
	}
	sim_check(held == admission_unconfirmed(gateway.admission), "unconfirmed: %zu, counted %zu",
		  held, admission_unconfirmed(gateway.admission));
	sim_check(held + admission_waiting(gateway.admission) <= UNCONFIRMED_MAX, "P9: %zu open",
		  held + admission_waiting(gateway.admission));
	sim_check(admission_waiting(gateway.admission) + waiters_count(gateway.waiters) ==
			  world.open,
		  "%zu requests are open, admission and the waiters have %zu", world.open,
		  admission_waiting(gateway.admission) + waiters_count(gateway.waiters));
}

static void promises_of_workers(void)
{
	for (int i = 0; i < WORKERS; i++) {
		sim_check(settlement_held(workers[i].settlement) <= unacked(&workers[i]),
			  "books of %zu, but %zu are un-acked",
			  settlement_held(workers[i].settlement), unacked(&workers[i]));
		sim_check(workers[i].unacked_n[RECEIVES] <= PREFETCH &&
				  workers[i].unacked_n[PARKING] <= PREFETCH,
			  "P9: more than the prefetch");
	}
}

static void promises_check(void)
{
	promises_of_redis();
	promises_of_database();
	promises_of_gateway();
	promises_of_workers();
}

/* The promises that can only be checked when everything has ended */

static size_t outbox_sum(void)
{
	size_t sum = 0;

	for (int i = 0; i < COUPONS; i++)
		sum += redis.coupons[i].outbox_n;
	return sum;
}

static int everything_ended(void)
{
	size_t busy = world.open + world.retries + broker.queued_n + broker.odd_n + outbox_sum() +
		      admission_unconfirmed(gateway.admission);

	for (int i = 0; i < WORKERS; i++)
		busy += unacked(&workers[i]) + (workers[i].transaction != 0);
	for (const struct redis_call *call = gateway.oldest; call; call = call->newer)
		busy++;
	return busy == 0;
}

static void truth_check(const struct truth *truth)
{
	size_t place = (size_t)(truth->receive.coupon - COUPON_FIRST);
	int issued = row_issued(&truth->receive) != NULL,
	    rejected = row_rejected(&truth->receive) != NULL;
	struct truth *known;

	sim_check(issued + rejected <= 1, "P3: issued and rejected");
	if (world.wiped[place] && !truth->held)
		return; /* receives that only Redis held are lost with it */
	sim_check(issued + rejected == 1,
		  "P3: user %lld of coupon %lld was accepted%s, and has no outcome",
		  (long long)truth->receive.user, (long long)truth->receive.coupon,
		  truth->answered ? " and told so" : "");
	if (world.wiped[place])
		return;
	sim_check(issued || place == PLACE_STRICT,
		  "P3: rejected, though Redis and PostgreSQL agree");
	if (*truth->key) {
		user_slots(&redis.coupons[place], truth->receive.user, truth->key, &known);
		sim_check(known && receive_same(&known->receive, &truth->receive),
			  "P6: the key is forgotten, or taken twice");
	}
}

static void end_check(void)
{
	for (size_t i = 0; i < truths_n; i++)
		truth_check(&truths[i]);
	for (int i = 0; i < COUPONS; i++) {
		const struct database_coupon *row = &database.coupons[i];

		if (world.wiped[i] || !redis.coupons[i].present)
			continue;
		sim_check(i == PLACE_STRICT || row->issued == (int64_t)redis.coupons[i].records_n,
			  "settled, but Redis has %zu slots and PostgreSQL %lld",
			  redis.coupons[i].records_n, (long long)row->issued);
		sim_check(row->settled == redis.coupons[i].seq &&
				  row->seq_seen == redis.coupons[i].seq,
			  "P4: %lld settled of %lld", (long long)row->settled,
			  (long long)redis.coupons[i].seq);
	}
	sim_check(broker.dead_n >= world.odd_sent,
		  "a message that cannot be settled was not dead-lettered");
	for (size_t i = 0; i < world.intents_n;
	     i++) /* a key's receive is the one that its clients got */
		if (world.intents[i].known)
			sim_check(truth_find(&world.intents[i].receive) != NULL,
				  "P6: an answered receive does not exist");
}

/* One run */

static void world_start(uint64_t seed)
{
	static const struct {
		int64_t total;
		int limit;
		int64_t begin_ms, end_ms;
	} terms[COUPONS - 1] = {
		{ 30, 1, 0, 0 }, { 60, 3, 0, 0 }, { 40, 2, 3000, 10000 }, { 25, 1, 0, 0 }
	};

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
	for (int i = 0; i < COUPONS - 1; i++) {
		database.coupons[i] = (struct database_coupon){ .exists = 1,
								.published = 1,
								.total = terms[i].total,
								.limit = terms[i].limit };
		if (i == PLACE_STRICT)
			database.coupons[i].limit--;
		if (i == COUPONS - 2)
			continue; /* the keeper will load it */
		database.coupons[i].generation = 1;
		redis.coupons[i] = (struct redis_coupon){
			.present = 1,
			.status = STATUS_OPEN,
			.total = terms[i].total,
			.stock = terms[i].total,
			.limit = terms[i].limit,
			.generation = 1,
			.run_id = 1,
			.begin_ms = terms[i].begin_ms ? REDIS_EPOCH_MS + terms[i].begin_ms : 0,
			.end_ms = terms[i].end_ms ? REDIS_EPOCH_MS + terms[i].end_ms : 0,
		};
	}
	workers_start();
	memset(&gateway, 0, sizeof(gateway));
	gateway_start();
	event_at(0, clients_burst, NULL, 0, 0);
	event_at(sim_between(200, 2000), keeper_turn, NULL, 0, 0);
}

static void world_stop(void)
{
	gateway_die();
	workers_stop();
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
	sim.rates[FAULT_SLOW] /= 10; /* each stops Redis for seconds */
	world.may_crash = !wipe;
	for (int64_t n = sim_between(0, 14); n > 0; n--)
		event_at(sim_between(100, STORM_MS), catastrophe, NULL,
			 (uint64_t)sim_between(GATEWAY_CRASH, ODD_MESSAGE),
			 (uint64_t)sim_between(0, 9));
	if (wipe)
		event_at(sim_between(1000, STORM_MS), catastrophe, NULL, REDIS_WIPE,
			 (uint64_t)sim_between(0, 2));
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
	}
}

static void test_storms(void **state)
{
	uint64_t first = environment("SIM_SEED", 1),
		 n = getenv("SIM_SEED") ? 1 : environment("SIM_SEEDS", 500);
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

/*
 * Each fault alone: at its N-th chance, once, and in another run from then on until the storm ends.
 */
static void test_sweep(void **state)
{
	char name[64];

	(void)state;
	for (int kind = 0; kind < FAULT_COUNT; kind++) {
		for (int for_ever = 0; for_ever < 2; for_ever++) {
			for (int at = 1; at <= 4096; at = at < 8 ? at + 1 : at * 2) {
				int counted;

				snprintf(name, sizeof(name), "sweep of %s at %d%s",
					 fault_names[kind], at, for_ever ? " for ever" : "");
				sim.name = name;
				sim.sweep = kind + 1;
				sim.sweep_at = at;
				sim.sweep_for_ever = for_ever;
				world_start(7);
				if (kind == FAULT_DEAD)
					for (int i = 0; i < 4; i++)
						event_at(500 + i * 700, catastrophe, NULL,
							 ODD_MESSAGE, 0);
				/* a gateway that dies leaves messages to send again */
				if (kind == FAULT_KEEPER)
					for (int i = 0; i < 4; i++)
						event_at(301 + i * 990, catastrophe, NULL,
							 GATEWAY_CRASH, 0);
				world.may_crash = 1;
				world_run();
				counted = sim.counts[kind];
				sim_check(counted > 0, "the place was never reached");
				world_stop();
				events_run_out();
				if (counted < at)
					break;
			}
		}
	}
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
