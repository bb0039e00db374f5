/*
 * A blocking connection to Redis, for threads of the worker and for couponctl; and the lease of the
 * master, which a thread with such a connection keeps. Connecting and each call are bounded in
 * time. One thread.
 *
 * A failed call is of one of two kinds. Refused: Redis replied an error to this command, which
 * concerns the keys that it names; the connection stays open. Lost: the connection was dropped, did
 * not reply in time, or Redis cannot serve any command now; the connection is closed, and whether
 * the command ran is unknown.
 */
#pragma once

#include "common/redis/redis.h"
#include "common/redis/sentinel.h"

#include <hiredis/hiredis.h>
#include <stdint.h>

#define REDIS_CLIENT_TIMEOUT_MS 2000 /* to connect, for the handshake of TLS, for each reply */
#define REDIS_CLIENT_KEYS_MAX 10     /* that a script may have */
#define REDIS_CLIENT_ARGS_MAX 1280
#define REDIS_CURSOR_SIZE 24

struct redis_client;

enum redis_failure { REDIS_UNREACHABLE, REDIS_LOST, REDIS_REFUSED };

/*
 * Called at each failure, to log it, but for attempts to connect that fail as the one before
 * (backoff_tells()). `why` is lent.
 */
typedef void redis_failed_fn(enum redis_failure failure, const char *why);

/* Does not connect. `failed` may be NULL. A malformed URL ends the process. */
struct redis_client *redis_client_new(const char *url, redis_failed_fn *failed);
/* Another connection to the same Redis, not connected yet. */
struct redis_client *redis_client_twin(const struct redis_client *client);
void redis_client_free(struct redis_client *client); /* NULL is allowed */

/*
 * Connects when it is not connected; under Redis Sentinel also when the Sentinels name another
 * master by now. 0, or -1.
 */
int redis_client_open(struct redis_client *client);
/* Whether a majority of the Sentinels names that server; without Sentinels it counts as named. */
int redis_client_is_followed(const struct redis_client *client);
/* After a call that failed: whether it was only refused. */
int redis_client_is_open(const struct redis_client *client);
void redis_client_close(struct redis_client *client);
int redis_client_fd(const struct redis_client *client); /* for poll(), while it is connected */
/* The reason why the last call failed. */
const char *redis_client_error(const struct redis_client *client);

/* One command. The reply, to be freed, or NULL. */
redisReply *redis_client_call(struct redis_client *client, int argc, const char **argv);
/* One command that replies a whole number. 0, or -1. */
int redis_client_integer(struct redis_client *client, int argc, const char **argv, int64_t *n);

/* A script on these keys. As redis_client_call(). */
redisReply *redis_client_eval(struct redis_client *client, const char *script, int keys_n,
			      const char *const *keys, int argc, const char **argv);
/* A script on a set of a coupon's keys. */
redisReply *redis_client_coupon_eval(struct redis_client *client, const char *script,
				     int64_t coupon, unsigned keys, int argc, const char **argv);
/* Frees the reply; returns the word that a script replied, empty when the call failed. */
void redis_word_take(redisReply *reply, char word[REDIS_WORD_SIZE]);

/*
 * Commands in one round trip: each is appended, then the replies are taken in the same order, each
 * as of redis_client_call(). After a lost connection every further reply is NULL.
 */
void redis_client_append(struct redis_client *client, int argc, const char **argv);
/* Sends what was appended, without waiting for a reply. */
void redis_client_flush(struct redis_client *client);
/*
 * Until redis_client_prepared_end() this connection sends only the hash of this script (at most 8
 * of them) where it is appended: Redis reads no more than some 20 KB of a connection before it
 * writes to its disk. Not between commands that are appended and their replies. Without effect if
 * Redis refuses it.
 */
void redis_client_prepare(struct redis_client *client, const char *script);
void redis_client_prepared_end(struct redis_client *client);
void redis_client_append_eval(struct redis_client *client, const char *script, int keys_n,
			      const char *const *keys, int argc, const char **argv);
void redis_client_append_coupon_eval(struct redis_client *client, const char *script,
				     int64_t coupon, unsigned keys, int argc, const char **argv);
redisReply *redis_client_next(struct redis_client *client);

/* The words of a command, at most eight; the last one is NULL. */
struct redis_words {
	const char *words[8];
};

/*
 * Commands at one moment (MULTI): the array of their replies, of which any may be an error. NULL
 * also when Redis does not accept one of them; then the connection is closed.
 */
redisReply *redis_client_transaction(struct redis_client *client,
				     const struct redis_words *commands, size_t n);

/*
 * One step of a scan of a hash, about `count` fields: reply->element[1] has fields and values. The
 * scan starts with the cursor "0", which each step updates, and ends when it is "0" again. As
 * redis_client_call().
 */
redisReply *redis_client_hscan(struct redis_client *client, const char *key,
			       char cursor[REDIS_CURSOR_SIZE], int count);

/* The run id, with its term, and for how long it has certainly been a master. 0, or -1. */
int redis_client_process(struct redis_client *client, char run_id[REDIS_RUN_ID_SIZE],
			 int64_t *uptime_s);
/*
 * How much was written to Redis since it last saved its data: another number means that something
 * was written. 0, or -1.
 */
int redis_client_writes(struct redis_client *client, int64_t *writes);
/* Redis' clock. 0, or -1. */
int redis_client_time_ms(struct redis_client *client, int64_t *now_ms);

/*
 * The lease of a master that Redis Sentinel has chosen: outside of it gateways issue nothing there,
 * so that one that was cut off has stopped before the next one opens.
 *
 * It is a record in Redis, FROM:UNTIL by that master's own clock (lua/master_lease.lua). Any
 * gateway and any worker extends it, for as long as a majority of the Sentinels, asked after FROM
 * was read, names that master. One that has ended is never extended: a new one begins under the
 * next term, so that each coupon is first compared with PostgreSQL again, and not before a majority
 * has named the master, without a break, for MASTER_LEASE_WAIT_MS by the monotonic clock of the
 * process that begins it. That is twice the lease, since the clock of the other master may have
 * been set back within its lease, and a tenth for clocks that run at different rates. Clocks of two
 * machines are never compared.
 *
 * Without Sentinels there is no lease.
 */

#define MASTER_LEASE_MS 1800
#define MASTER_LEASE_WAIT_MS 3800

/* Keeps it, in a thread of this process until it ends, if the URL has Sentinels. */
void master_lease_keep(const char *redis_url);

/* Revoked exchange codes in Redis, where they are decided: see lua/revoke.lua. */

#define REDIS_REVOKE_CODES_MAX 512 /* that a call takes */

/* The revocations above `from`, up to `to`, in the copy of this generation. */
struct redis_revocation {
	const char *run_id; /* identifies the Redis process */
	int64_t coupon, generation, from, to;
};

enum redis_revoked {
	REDIS_REVOKED_FAILED, /* as redis_client_call() */
	REDIS_REVOKED_DONE,
	REDIS_REVOKED_MISSING, /* Redis does not have the coupon: it is loaded with the codes */
	REDIS_REVOKED_BEHIND   /* Redis has another copy by now, or lost revocations up to `from` */
};

/*
 * Marks codes, each as Redis names it. The last call has `is_last`, and possibly no codes: it
 * records that all revocations up to `to` are marked. What Redis has accepted until then in this
 * generation has at most this `seq`; -1: Redis cannot tell, it may have lost numbers.
 */
enum redis_revoked redis_revoke(struct redis_client *redis,
				const struct redis_revocation *revocation, int is_last, size_t n,
				const char *const *codes, int64_t *seq);

/*
 * A value of coupon:{ID}:codes is the user who has claimed the code, "" if it is revoked, or the
 * user and a space: revoked as soon as that receive loses it. The length of the user; 0: none.
 */
size_t redis_code_user(const redisReply *value);
int redis_code_is_revoked(const redisReply *value); /* now, or later */
