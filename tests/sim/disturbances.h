/*
 * What happens to the gateway and the workers: the keeper's turns, changed terms, crashes, cuts,
 * restarts, a wiped Redis.
 */
#pragma once

#include "keeper/resend.h"
#include "tests/sim/clients.h"

#define RESEND_AFTER_MS 3000

/* The keeper: loads, verifies, publishes again what may be lost. */

static struct resend *resend;

static void entry_resend(struct resend_pass *pass, const struct outbox_entry *entry)
{
	const char *error;

	assert_int_equal(message_decode(workers[0].unpack.arena, entry->body, entry->len, &decoded,
					&error),
			 0);
	if (!resend_covers(resend, pass, decoded.generation, decoded.seq,
			   redis_now_ms() - entry->at_ms))
		return;
	pass->sent++;
	broker_enqueue(MESSAGE_RECEIVES, entry->body, entry->len, 0);
}

static void keeper_resend(int place)
{
	const struct redis_coupon *coupon = &redis.coupons[place];
	const struct database_coupon *row = &database.coupons[place];
	const struct resend_coupon view = { .id = COUPON_FIRST + place,
					    .generation = row->generation,
					    .seq = coupon->seq,
					    .seq_seen = row->seq_seen,
					    .settled = row->settled,
					    .outbox_n = (int64_t)coupon->outbox_n };
	struct resend_pass *pass;

	if (coupon->outbox_n == 0) {
		resend_forget(resend, view.id);
		return;
	}
	pass = resend_look(resend, &view, sim.now_ms);
	if (!pass)
		return;
	for (size_t i = 0; i < coupon->outbox_n; i++)
		entry_resend(pass, &coupon->outbox[i]);
	resend_pass_end(resend, &view, sim.now_ms);
}

static void keeper_turn(void *context, uint64_t a, uint64_t b)
{
	(void)context;
	(void)a;
	(void)b;
	resend_ready(resend, RESEND_RECEIVES, (int64_t)broker_waiting(), sim.now_ms);
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
		if (world.wiped[i] && coupon->placeholder) {
			/* Rebuilt under a new generation; nothing more is sold. */
			row->generation++;
			row->seq_seen = row->settled = 0;
			coupon->placeholder = 0;
			coupon->status = STATUS_CLOSED;
			coupon->generation = row->generation;
			coupon->run_id = redis.run_id;
		} else if (world.wiped[i] && !coupon->present) {
			coupon->present = coupon->placeholder = 1;
			coupon->generation = row->generation;
		}
		if (!coupon->present || coupon->placeholder)
			continue;
		if (coupon->run_id != redis.run_id && coupon->generation == row->generation &&
		    coupon->seq >= row->seq_seen)
			coupon->run_id = redis.run_id;
		keeper_resend(i);
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
	if (world.wiped[place])
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
	LINK_AWAY,
	REDIS_CUT,
	ODD_MESSAGE,
	QUEUE_PURGE,
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
	static struct redis_coupon window;
	struct redis_coupon *wiped;

	(void)context;
	if (!world.stormy)
		return;
	switch ((enum catastrophe)kind) {
	case GATEWAY_CRASH:
		/* Redis has lost data: nothing may depend on this process for long. */
		if (!world.may_crash && !world.wiped_ms)
			return;
		if (world.wiped_ms &&
		    copies_unsafe(gateway.copies, world.wiped_ms, NULL, NULL) > 0) {
			event_in(200, 1000, catastrophe, NULL, GATEWAY_CRASH, 0);
			return;
		}
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
	case LINK_AWAY:
		gateway.link_away_until_ms = sim.now_ms + sim_between(2000, 6000);
		link_cut();
		return;
	case REDIS_CUT:
		redis_connection_cut();
		return;
	case ODD_MESSAGE:
		odd_message();
		return;
	case QUEUE_PURGE:
		if (world.may_purge)
			broker_purge();
		return;
	/*
	 * then PostgreSQL alone must keep P1 and P2, and nothing that the gateway holds is lost,
	 * even if it dies as soon as Redis has it again
	 */
	case REDIS_WIPE:
		world.wiped[place % COUPONS] = 1;
		world.wiped_ms = sim.now_ms;
		wiped = &redis.coupons[place % COUPONS];
		window = *wiped;
		redis_wipe(wiped);
		wiped->begin_ms = window.begin_ms; /* the keeper will put it back with its terms */
		wiped->end_ms = window.end_ms;
		return;
	}
}
