/*
 * Redis as couponctl uses it: one synchronous connection. Every function returns a negative number
 * or NULL when Redis could not be asked or refused, with the sentence in cache_error().
 */
#ifndef CTL_REDIS_H
#define CTL_REDIS_H

#include <hiredis/hiredis.h>
#include <stdint.h>

#define CACHE_TIMEOUT_MS 2000 /* to connect, and for each answer */
#define CACHE_ERROR_SIZE 256
#define CACHE_RUN_ID_SIZE 41

struct cache;

/* What K1 holds; numbers are 0 where they are missing. */
struct cache_coupon {
	char status[16];
	char run_id[CACHE_RUN_ID_SIZE];
	int64_t total, stock, reserved, lost, begin_ms, end_ms, limit, generation, seq, version;
	int64_t late; /* the last outcome of an older generation that was applied */
};

struct terms {
	int64_t version;
	const char *status;                     /* of PostgreSQL: published, paused or closed */
	int64_t total, begin_ms, end_ms, limit; /* 0 ms: no bound */
};

enum terms_result { TERMS_APPLIED, TERMS_CURRENT, TERMS_MISSING, TERMS_TAKEN, TERMS_FAILED };

/* NULL with the reason in `error`; a malformed URL ends the process. */
struct cache *cache_open(const char *url, char error[CACHE_ERROR_SIZE]);
void cache_close(struct cache *cache); /* NULL is allowed */
const char *cache_error(const struct cache *cache);

/* The answer is the caller's, to be freed with freeReplyObject(). */
redisReply *cache_command(struct cache *cache, int argc, const char **argv);

/* At most eight words of which the last is NULL. */
struct cache_words {
	const char *words[8];
};

/*
 * Some commands at one moment (MULTI): the array of their answers, in which an element may be an
 * error.
 */
redisReply *cache_transaction(struct cache *cache, const struct cache_words *commands, size_t n);

/*
 * The names of a coupon's keys, each at most CACHE_KEY_SIZE with its NUL; `suffix` is "", ":users",
 * ":outbox", …
 */
#define CACHE_KEY_SIZE 48
const char *cache_key(int64_t coupon, const char *suffix, char out[CACHE_KEY_SIZE]);

/* 1 when Redis has the coupon, 0 when not. */
int cache_coupon_read(struct cache *cache, int64_t coupon, struct cache_coupon *read);

/* The run id of the Redis process. 0, or -1. */
int cache_run_id(struct cache *cache, char run_id[CACHE_RUN_ID_SIZE]);

/* lua/terms.lua; `*taken` is set when the result is TERMS_TAKEN. */
enum terms_result cache_terms(struct cache *cache, int64_t coupon, const struct terms *terms,
			      int64_t *taken);

int64_t cache_outbox_length(struct cache *cache, int64_t coupon);

/* One step of a scan of a hash, as HSCAN returns it: cursor, then pairs of field and value. */
redisReply *cache_scan(struct cache *cache, const char *key, const char *cursor, int count);
redisReply *cache_users_scan(struct cache *cache, int64_t coupon, const char *cursor, int count);

#endif
