/*
 * What the broker and the workers of the simulation have, between two events.
 */
#pragma once

#include "tests/sim/model_database.h"

/* Both sides have an enum outcome of their own; only here they are used together. */
#define OUTCOME_ISSUED WORKER_ISSUED
#define OUTCOME_REPEATED WORKER_REPEATED
#define OUTCOME_REJECTED WORKER_REJECTED
#include "worker/settlement.h"
#undef OUTCOME_ISSUED
#undef OUTCOME_REPEATED
#undef OUTCOME_REJECTED

#define WORKERS 2
#define PREFETCH 8
#define TRANSACTION_RECEIVES 300
#define REDELIVERIES_ALONE 2
#define REDELIVERIES_APART 4

enum message_kind { MESSAGE_RECEIVES, MESSAGE_GARBAGE, MESSAGE_POISON };

struct queued {
	STAILQ_ENTRY(queued) next;
	enum message_kind kind;
	uint64_t tag; /* while un-acked */
	int deliveries;
	int parked;        /* in the parking queue, or delivered from it */
	size_t purges;     /* how many there had been when it was delivered */
	uint64_t reply_to; /* incarnation of the gateway that waits, 0: none does */
	size_t len;
	char body[];
};

STAILQ_HEAD(queued_list, queued);

struct worker_rig {
	struct settlement *settlement;
	struct unpack unpack;
	/*
	 * rises with every crash and every new connection: data in flight to an old one is dropped
	 */
	uint64_t incarnation;
	uint64_t process; /* rises with every crash */
	uint64_t next_tag;
	int up;
	struct queued_list unacked;
	size_t unacked_n[2];  /* of the receive queue, and of the parking queue */
	uint64_t transaction; /* 0: none is in flight */
	struct outcome outcomes[TRANSACTION_RECEIVES + MESSAGE_RECEIVES_MAX];
	int64_t retry_ms;
};

/* Indexes of the receive queue and of the parking queue. */
enum { RECEIVES, PARKING };

static struct {
	struct queued_list queue[2];
	size_t queued_n; /* in both */
	size_t odd_n;    /* messages that must end dead-lettered */
	size_t dead_n;   /* dead-lettered, some of them twice */
	size_t purges;
} broker;

static struct worker_rig workers[WORKERS];

/* What another session has locked. */
static struct {
	int64_t coupon;
	int64_t until_ms;
	int is_shown; /* by a look */
} locked;

static struct message decoded;

static size_t unacked(const struct worker_rig *worker)
{
	return worker->unacked_n[RECEIVES] + worker->unacked_n[PARKING];
}

static void worker_turn(struct worker_rig *worker);
static void gateway_outcomes_arrive(void *context, uint64_t incarnation, uint64_t len);
