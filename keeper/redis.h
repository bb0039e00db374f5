/* The keeper's connection to Redis: blocking, each call bounded in time and in size. One thread. */
#ifndef KEEPER_REDIS_H
#define KEEPER_REDIS_H

#include "keeper/judge.h"

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

#define KEEPER_REDIS_TIMEOUT_MS 2000 /* to connect, and for each call */
#define KEEPER_KEY_SIZE 80

struct keeper_redis;

struct keeper_redis *keeper_redis_new(const char *url);
void keeper_redis_free(struct keeper_redis *redis);

/* Connects when it is not connected. 0, or -1 (logged). */
int keeper_redis_open(struct keeper_redis *redis);
int keeper_redis_connected(const struct keeper_redis *redis);
/* After any failure: what was asked may or may not have been done. */
void keeper_redis_drop(struct keeper_redis *redis);

/*
 * One command. The reply, or NULL: the connection is dropped, or Redis answered an error (logged).
 * Free the reply.
 */
redisReply *keeper_redis_call(struct keeper_redis *redis, int argc, const char **argv,
			      const size_t *lens);

/* A script on these keys, at most KEEPER_KEYS_MAX. As keeper_redis_call(). */
#define KEEPER_KEYS_MAX 7
redisReply *keeper_redis_eval(struct keeper_redis *redis, const char *script, int keys_n,
			      const char *const *keys, int argc, const char **argv);
/*
 * A script on the coupon's three keys. `argv` are its arguments, argc <= KEEPER_ARGS_MAX. As
 * keeper_redis_call().
 */
#define KEEPER_ARGS_MAX 1280
redisReply *keeper_redis_coupon_eval(struct keeper_redis *redis, const char *script, int64_t coupon,
				     int argc, const char **argv);

/* The process that is connected to, and since when it runs. 0, or -1. */
int keeper_redis_run_id(struct keeper_redis *redis, char run_id[KEEPER_RUN_ID_SIZE],
			int64_t *uptime_s);
/* Redis' clock. 0, or -1. */
int keeper_redis_time_ms(struct keeper_redis *redis, int64_t *now_ms);

/* What Redis has of these coupons, in one round trip. 0, or -1. */
int keeper_redis_look(struct keeper_redis *redis, const struct coupon_row *rows, size_t n,
		      struct coupon_look *looks);

/*
 * Raises the fence of those whose fence is lower, in one round trip: what an earlier keeper still
 * wants to write to them is refused from then on. 0, 1 when one has a higher fence, or -1.
 */
int keeper_redis_fence(struct keeper_redis *redis, const struct coupon_row *rows, size_t n,
		       const struct coupon_look *looks, int64_t fence);

/*
 * How many receives of older generations have their slot there although they are in flight. 0, or
 * -1.
 */
int keeper_redis_known(struct keeper_redis *redis, int64_t coupon, int64_t *n);
/*
 * The word a script answered with, alone or first of a list, copied; empty when it failed. Frees
 * the reply.
 */
#define KEEPER_WORD_SIZE 16
void keeper_word_take(redisReply *reply, char word[KEEPER_WORD_SIZE]);

/* "coupon:{ID}" and `suffix`. Returns `out`. */
char *keeper_key(int64_t coupon, const char *suffix, char out[KEEPER_KEY_SIZE]);

#endif
