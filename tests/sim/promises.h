/*
 * The promises of the design: those that hold after every event, and those that hold when
 * everything has ended.
 */
#pragma once

#include "tests/sim/disturbances.h"

/* PostgreSQL allows a user less of this coupon than Redis: some receives are rejected */
#define PLACE_STRICT 2

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
				   user_id_same(&database.rows[i].receive.user, &row->receive.user);
		}
		sim_check(rows == coupon->issued && rows <= coupon->total, "P1: %lld rows of %lld",
			  (long long)rows, (long long)coupon->total);
		sim_check(of_user <= coupon->limit, "P2: a user has %lld of %d", (long long)of_user,
			  coupon->limit);
	}
}

static void promises_of_gateway(void)
{
	size_t held = 0, calls[COUPONS] = { 0 }, open[COUPONS];

	memcpy(open, world.unsent, sizeof(open));
	for (const struct redis_call *call = gateway.oldest; call; call = call->newer) {
		if (!call->call)
			continue;
		open[call->coupon - COUPON_FIRST] += call->n;
		sim_check(call->n <= 16 && ++calls[call->coupon - COUPON_FIRST] <= 2,
			  "P9: a call too large, or too many");
	}
	for (int i = 0; i < COUPONS; i++) {
		held += gateway.held[i];
		sim_check(open[i] + gateway.held[i] <= UNCONFIRMED_PER_COUPON_MAX,
			  "P9: %zu receives of one coupon are open", open[i] + gateway.held[i]);
	}
	sim_check(held == admission_unconfirmed(gateway.admission), "unconfirmed: %zu, counted %zu",
		  held, admission_unconfirmed(gateway.admission));
	sim_check(unconfirmed_or_open() <= UNCONFIRMED_MAX, "P9: %zu open", unconfirmed_or_open());
}

static void promises_of_workers(void)
{
	for (int i = 0; i < WORKERS; i++) {
		sim_check(settlement_counts(workers[i].settlement).held <= unacked(&workers[i]),
			  "books of %zu, but %zu are un-acked",
			  settlement_counts(workers[i].settlement).held, unacked(&workers[i]));
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
		  "P3: user %s of coupon %lld was accepted%s, and has no outcome",
		  truth->receive.user.text, (long long)truth->receive.coupon,
		  truth->answered ? " and answered" : "");
	if (world.wiped[place])
		return;
	sim_check(issued || place == PLACE_STRICT,
		  "P3: rejected, though Redis and PostgreSQL agree");
	if (*truth->key) {
		user_slots(&redis.coupons[place], &truth->receive.user, truth->key, &known);
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
	/* A key's receive is the one that its clients got. */
	for (size_t i = 0; i < world.intents_n; i++)
		if (world.intents[i].known)
			sim_check(truth_find(&world.intents[i].receive) != NULL,
				  "P6: an answered receive does not exist");
}
