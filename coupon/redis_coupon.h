/*
 * A coupon as Redis has it: its hash, its generations, its users, its outbox. No function ends the
 * process or waits for more than the replies of Redis; "failed" is as of redis_client_call().
 */
#pragma once

#include "common/message/message.h"
#include "common/redis/redis_client.h"
#include "coupon/slot.h"

#define REDIS_COUPON_FIELDS 16

/* Numbers are 0 where the hash does not have them. */
struct redis_coupon {
	char status[16];
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t total, stock, reserved, lost, begin_ms, end_ms, limit, generation, seq, version;
	int64_t late; /* the last outcome of an older generation that was applied */
	int64_t fence, revocation;
	int64_t placeholder; /* not 0: left by an unfinished rebuild, without other numbers */
	/* Fields that no script has written, or that are missing: constants. */
	struct redis_coupon_bad {
		const char *field, *what;
	} bad[REDIS_COUPON_FIELDS];
	int bad_n;
};

/* Reads the reply to HGETALL. A coupon that a keeper holds may lack any field but its run id. */
void redis_coupon_parse(struct redis_coupon *coupon, const redisReply *hash);
/* A keeper is at work on it. */
int redis_coupon_is_held(const struct redis_coupon *coupon);

/*
 * 1 when Redis has the coupon, 0 when it does not; below 0 when the call failed, for
 * redis_client_error().
 */
int redis_coupon_read(struct redis_client *redis, int64_t coupon, struct redis_coupon *read);
int64_t redis_coupon_taken(const struct redis_coupon *read); /* slots */
/* Whether it was verified on the connected Redis process; 0 also when that is unknown. */
int redis_coupon_is_verified(struct redis_client *redis, const struct redis_coupon *read);

/* How far a rebuild is. */
struct redis_filled {
	int64_t filled, rows; /* slots in Redis, of all */
	int64_t ms;           /* since the first one */
	int64_t left_s;       /* at the same speed */
};

/* 1 when the keeper has said so of a rebuild that takes longer; otherwise 0. */
int redis_coupon_filled(struct redis_client *redis, int64_t coupon, struct redis_filled *filled);

/*
 * The generations of a coupon, one for each rebuild in Redis, with their highest receive numbers in
 * both stores. Number 0: the sums of those that PostgreSQL has folded.
 */
struct generation {
	int64_t number;
	int64_t high; /* the highest receive number that is known */
	int64_t settled;
	int64_t idle_ms; /* since its last outcome; INT64_MAX: none is recorded */
	int64_t owed;    /* the caller's: receives without an outcome that can still arrive */
};

/* All zero at first. */
struct generations {
	struct generation *list;
	size_t n, size;
};

void generations_fini(struct generations *generations);
/* The generation with this number, added if it is new. Valid until the next one is added. */
struct generation *generation_find(struct generations *generations, int64_t number);
/* Raises `high`. */
void generation_raise(struct generations *generations, int64_t number, int64_t high);
/*
 * Adds a row with the columns generation, seq_seen, settled_num from column `first` on, and then
 * idle_ms if the row has it.
 */
void generation_add_row(struct generations *generations, const PGresult *rows, int row, int first);

/*
 * Raises each to what Redis has: `hash` is the coupon's, with its own number and those before, and
 * `seen` what gateways have reported. Either may be NULL or an error. 0, or -1: a number is
 * malformed.
 */
int generations_raise(struct generations *generations, const redisReply *hash,
		      const redisReply *seen);

/* Receive numbers without an outcome, of all generations but `current`; 0: of all. */
int64_t generations_unsettled(const struct generations *generations, int64_t current);
/* Adds them all to arrays of int4 and int8. */
void generations_arrays(const struct generations *generations, struct postgres_array *numbers,
			struct postgres_array *highs);

/* A command on one key of the coupon, with at most six words, then NULL. The reply, or NULL. */
redisReply *coupon_call(struct redis_client *redis, int64_t coupon, const char *command,
			enum coupon_key which, ...) __attribute__((sentinel));

/*
 * Scans a hash of a coupon, about `count` fields a step. `step` gets the fields of a step as an
 * array of names and values in turn. HSCAN may return a field in more than one step. 0; -1: it
 * failed; or what `step` has returned, if that was not 0: then the scan ends.
 */
typedef int coupon_scan_fn(void *context, const redisReply *fields);
int coupon_scan(struct redis_client *redis, int64_t coupon, enum coupon_key which, int count,
		coupon_scan_fn *step, void *context);

/*
 * One entry of the outbox. `error`, a constant: no script has written it, and `message` is NULL
 * unless it can be decoded; otherwise NULL. 0, or what is to be returned.
 */
typedef int outbox_fn(void *context, const redisReply *batch, const struct message *message,
		      const char *error);
/* Each entry of one step of a scan. */
int outbox_entries(const redisReply *entries, int64_t coupon, outbox_fn *take, void *context);
/* Each entry, at least once. As coupon_scan(). */
int outbox_scan(struct redis_client *redis, int64_t coupon, outbox_fn *take, void *context);

#define COUPON_SLOTS_MAX 1000
/* HMGET of at most COUPON_SLOTS_MAX fields: an array of their values. NULL: it failed. */
redisReply *coupon_fields(struct redis_client *redis, int64_t coupon, enum coupon_key which,
			  const char *const *fields, size_t n);
/*
 * The records of the users of at most COUPON_SLOTS_MAX slots, in their order: an array of strings,
 * nil where a user has none. NULL: it failed.
 */
redisReply *coupon_records(struct redis_client *redis, int64_t coupon, const struct slot *slots,
			   size_t n);
/*
 * Whether the batch of each slot is in the outbox (COUPON_KEY_OUTBOX), or marked as dead-lettered
 * (COUPON_KEY_DEAD), or whether the receive is known from an older generation (COUPON_KEY_KNOWN).
 * 0, or -1: it failed.
 */
int coupon_has(struct redis_client *redis, int64_t coupon, enum coupon_key which,
	       const struct slot *slots, size_t n, char *has);
