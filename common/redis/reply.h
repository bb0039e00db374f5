/* Interprets replies of Redis. Pure. */
#ifndef COMMON_REDIS_REPLY_H
#define COMMON_REDIS_REPLY_H

#include <hiredis/hiredis.h>
#include <stdint.h>

#define REDIS_RUN_ID_SIZE 41
#define REDIS_WORD_SIZE 16

/*
 * Whether an error concerns the state of the server, so that any other command would fail as well:
 * it is loading, busy, read-only, out of connections. Any other error concerns this command and the
 * keys that it names.
 */
int redis_error_is_of_server(const char *error);
/*
 * Whether the error means that the command or script did not run, or had no effect. After any other
 * error that is unknown.
 */
int redis_error_means_not_run(const char *error);

/* The number in a reply, as an integer or as text; 0 when it is neither. */
int64_t redis_reply_number(const redisReply *reply);
/* The word that a script replied, alone or first of a list; empty when it is none. */
void redis_reply_word(const redisReply *reply, char word[REDIS_WORD_SIZE]);

/* The reply to TIME. 0, or -1 when it is something else. */
int redis_reply_time_ms(const redisReply *reply, int64_t *time_ms);
/* The reply to INFO server: the process, and for how long it has run. 0, or -1. */
int redis_reply_process(const redisReply *reply, char run_id[REDIS_RUN_ID_SIZE], int64_t *uptime_s);
#define REDIS_VERSION_SIZE 32
/*
 * The same reply: the product, "Redis" or "Valkey", and its version; empty when it is absent.
 * Valkey also states the version of Redis that it is compatible with.
 */
const char *redis_reply_version(const redisReply *reply, char version[REDIS_VERSION_SIZE]);
/* The reply to INFO persistence: how much was written since the last save. 0, or -1. */
int redis_reply_writes(const redisReply *reply, int64_t *writes);
/* Whether it is a reply to HSCAN: a cursor, and an array of fields and values. */
int redis_reply_is_scan(const redisReply *reply);

/*
 * Whether the field `name` of a coupon is the highest receive number of an older generation,
 * "high:GENERATION". 1 with both numbers; 0: it is another field; -1: no script wrote it.
 */
int redis_reply_high(const redisReply *name, const redisReply *value, int64_t *generation,
		     int64_t *high);

#endif
