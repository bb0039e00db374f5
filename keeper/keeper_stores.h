/*
 * What the keeper knows of its two stores: whether they belong together, whether PostgreSQL was put
 * back, and whether Redis has been told what gateways have seen.
 *
 * PostgreSQL was put back to an earlier moment if a number of change_count is below its copy in
 * Redis (common/changes.h). Only the Redis that belongs to this PostgreSQL can tell. While it is
 * so, the keeper holds every coupon in Redis and does nothing else, until couponctl recover has
 * ended it. While Redis has the id of another installation nothing is changed anywhere. While it
 * has none, having lost its data, the gateways adopt it, which know the id from before; this thread
 * does so only when no gateway has.
 *
 * Coupons may be opened on a new process of Redis at once when all gateways have reported to it
 * what they have seen. Known are those with a row in PostgreSQL (sql/function/gateway_alive.sql),
 * and those whose mark in Redis (couponmq:gateways: the process to which it has reported) this
 * worker has ever read: one that started while PostgreSQL was away has no row, and an emptied Redis
 * has no marks. A gateway issues nothing before it has its row, or has had its mark for 3 s. So one
 * is unknown only if this worker did not read the marks in the last seconds of the Redis before:
 * then, and while a gateway that is known is missing, coupons are opened when the time for reports
 * is over.
 *
 * Redis also follows one server (common/changes.h). One that was promoted is followed before it is
 * compared, and while PostgreSQL is an old primary nothing is changed anywhere, as above.
 *
 * API keys have numbers of their own (common/api_keys.h): while Redis is behind, the elected keeper
 * copies what is missing; while it is ahead, all stays as it is until couponctl recover. That needs
 * no fence: what a keeper writes that was suspended meanwhile is older than what Redis has then.
 *
 * The keeper's thread.
 */
#pragma once

#include "common/changes.h"
#include "keeper/context.h"

struct keeper_gateway;

/* What PostgreSQL lacks that Redis knows of. */
struct keeper_lack {
	int64_t transactions; /* at least; 0: nothing */
	int64_t others;       /* of these: what did more than settle receives */
	int is_promoted;      /* its cluster is the one that Redis follows */
};

/* All zero at first. */
struct keeper_stores {
	struct changes copy;    /* the caller reads it before keeper_stores_compare() */
	enum relation relation; /* RELATION_UNKNOWN: it was never seen */
	char installation[INSTALLATION_SIZE]; /* of PostgreSQL */
	int installations_n;                  /* another number: PostgreSQL has got another id */
	int64_t unadopted_ms;                 /* since when Redis has no id; 0: it has one */
	struct keeper_lack lack;
	int64_t fence; /* of the last elected keeper, by PostgreSQL */
	int64_t hold_due_ms;
	int64_t keys_version, keys_copied; /* in PostgreSQL; in Redis, -1: not known */
	int keys_are_ahead;

	struct keeper_gateway *gateways; /* known, by id */
	int64_t read_ms;                 /* when the marks were last read */
	int64_t lost_ms;                 /* when Redis was first missed since; 0: it was not */
	int is_complete; /* none is unknown that has seen anything of the process before */
	int64_t full_ms; /* there were too many to remember them all; 0: never */
	int64_t tidy_ms; /* the next tidying */
};

void keeper_stores_fini(struct keeper_stores *stores);

/* Redis cannot be reached. */
void keeper_stores_lost(struct keeper_stores *stores);
/*
 * In each turn of every worker: reads the process of Redis, which it sets in the context, and the
 * marks. 0, or -1.
 */
int keeper_stores_read(struct keeper_stores *stores, struct keeper_context *context);
/*
 * Compares PostgreSQL with the copy, and raises the copy in Redis. 0, and `relation`, `lack`,
 * `fence` and the versions of keys are set; or -1: Redis or PostgreSQL failed.
 */
int keeper_stores_compare(struct keeper_stores *stores, struct keeper_context *context);
/*
 * Copies the numbers as they are now, before Redis is told what a transaction has changed that may
 * be later than keeper_stores_compare(). 0, or -1: Redis or PostgreSQL failed.
 */
int keeper_stores_copy(struct keeper_context *context);
/* Holds every coupon in Redis, when a pass is due. 0, or -1: Redis or the lock is lost. */
int keeper_stores_hold(struct keeper_stores *stores, struct keeper_context *context);
/*
 * In each round of the elected keeper, after keeper_stores_read(): sets `may_open` of the context.
 * 0, or -1: Redis or PostgreSQL failed.
 */
int keeper_stores_round(struct keeper_stores *stores, struct keeper_context *context);
/*
 * In each round of the elected keeper, after keeper_stores_compare(): copies API keys. 0, or -1:
 * Redis, PostgreSQL or the lock is lost.
 */
int keeper_stores_keys(struct keeper_stores *stores, struct keeper_context *context);
