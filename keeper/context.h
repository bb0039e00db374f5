/*
 * The state that every step of the keeper uses: its connections, its lock and fence, the event that
 * was last logged for each coupon, and the scope of a failure.
 *
 * The lock is the lock "keeper" of lock/, in Redis. Its lease is renewed after a third of it, by
 * the keeper's thread, so that one that hangs loses it, and over the connection of the keeper's
 * scripts. A worker that cannot verify that it holds the lock treats it as lost.
 */
#pragma once

#include "common/message/number.h"
#include "common/put_off.h"
#include "keeper/coupon_state.h"
#include "lock/redis_lease.h"

#include <stdatomic.h>

struct keeper_lock {
	struct redis_lease lease;
	int64_t lease_ms;
	int64_t renewed_ms; /* just before the last renewal that succeeded */
	int64_t writes;     /* to Redis, by its renewals */
	int held;
	int may_own; /* the lease was granted, or nobody knows: no answer came */
};

/*
 * The number of coupons whose last logged event is remembered, so that a lasting state is logged
 * once. When two coupons share an entry, the later one replaces the earlier one.
 */
#define KEEPER_MEMORY_N 1024

struct keeper_memory {
	int64_t coupon;
	const char *event; /* a constant */
	int64_t reserved;  /* when last compared */
};

struct rebuild;

struct keeper_context {
	struct redis_client *redis;
	struct keeper_database *database;
	const char *database_url;
	int is_synchronous;  /* COUPON_DATABASE_SYNCHRONOUS */
	struct rebuild *big; /* the rebuild of a big coupon; NULL: none */
	struct keeper_lock lock;
	const atomic_int *stop;
	const char *installation; /* of PostgreSQL */
	int64_t fence;
	char fence_text[3 * NUMBER_SIZE]; /* of keeper_context_fence() */
	int fenced; /* another keeper may have been elected: a new election is needed */
	/*
	 * Redis or PostgreSQL refused a command for this coupon alone, or a row of it is locked:
	 * the coupon is put off
	 */
	int refused;
	char run_id[REDIS_RUN_ID_SIZE];
	/* from when gateways could connect to this Redis process, and its term began; monotonic */
	int64_t run_since_ms, term_since_ms;
	/* gateways have reported what they have seen, or had the time: keeper_stores.h */
	int may_open;
	struct keeper_memory memory[KEEPER_MEMORY_N];
};

/*
 * Tries to take the lock. 1 when this process holds it. One that could not be renewed in time,
 * because Redis was away, is this worker's again if its lease has not ended.
 */
int keeper_lock_take(struct keeper_context *context);
/* Renews the lock when due. 0 while it is held, -1 when it is lost. Called before every step. */
int keeper_lock_hold(struct keeper_context *context);
/* Releases the lock, so that another worker can take it before the lease expires. */
void keeper_lock_release(struct keeper_context *context);

/* Called between two steps: 0, or -1 when the lock may not be held, or the worker is stopping. */
int keeper_context_goes_on(struct keeper_context *context);
/*
 * After a failure with one coupon: 0 when the round can go on, -1 when it is over.
 */
int keeper_context_usable(struct keeper_context *context);
/*
 * After Redis or PostgreSQL has failed a command for one coupon: 0, and `refused` is set, when the
 * failure concerns this coupon alone; -1 when the round is over.
 */
int keeper_context_failed(struct keeper_context *context);
/*
 * After a script replied `word`, or failed ("" as of redis_word_take()). -1 when the round is over:
 * another keeper has a higher fence, or the connection is lost. Otherwise 0; `refused` is set
 * if Redis refused it for this coupon.
 */
int keeper_context_word(struct keeper_context *context, const char *word);
/*
 * The word that the next script of a round trip replied, as of redis_word_take(). If it is
 * "fenced", that is recorded.
 */
void keeper_context_next(struct keeper_context *context, char word[REDIS_WORD_SIZE]);
/*
 * Runs a statement that returns whether this keeper is still elected, and whether the change was
 * made (`*done`). 0, or -1 when the round is over. 0 with `refused` set: it failed for this coupon.
 */
int keeper_context_change(struct keeper_context *context, const char *sql, int n,
			  const struct postgres_argument *arguments, int *done);
/* Records that another keeper has a higher fence, or may have been elected (logged). Returns -1. */
int keeper_context_fenced(struct keeper_context *context);

/*
 * The fence as the scripts take it, "NUMBER:FROM:UNTIL", with the times of Redis' clock within
 * which the lock is held: `fence_text`, until the next call. Renews the lock when due, so it may
 * not be called between commands that are appended to `redis`; a script with the times of a lost
 * lock writes nothing.
 */
const char *keeper_context_fence(struct keeper_context *context);

/* Records the last event of this coupon, a constant. 1 when it differs from the one before. */
int keeper_context_event_is_new(struct keeper_context *context, int64_t coupon, const char *event);
/* Records the number of reserved receives. 1 when it differs from the one before. */
int keeper_context_reserved_changed(struct keeper_context *context, int64_t coupon,
				    int64_t reserved);

/* Puts a coupon off after a step has failed for it alone (logged and counted). */
void keeper_context_put_off(struct put_off *put_off, int64_t coupon);
