/*
 * A message whose outbox entry Redis may have lost, and how it is written again. Gateways do so with
 * what RabbitMQ has not confirmed, workers with deliveries that they cannot settle yet.
 *
 *	HMGET of the coupon ──▶ restore_state() ──RESTORE_LOST──▶ lua/restore.lua
 *
 * The script judges again, so that nothing happens if the coupon has changed in between. No I/O.
 */
#pragma once

#include "common/message/number.h"
#include "common/message/receive.h"
#include "common/redis/redis.h"

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

#define RESTORE_MESSAGES_MAX 16 /* of one call, as of lua/restore.lua */
#define RESTORE_BYTES_MAX 65536 /* of their bodies, unless the first has more: the caller's */

/* What Redis has of a coupon. */
struct restore_look {
	int is_present;
	int is_placeholder;
	int64_t generation;
	int64_t seq;
};

/* The words of the command whose reply restore_look_take() reads. */
#define RESTORE_LOOK_WORDS(key) "HMGET", key, "generation", "seq", "placeholder"
#define RESTORE_LOOK_WORDS_N 5

/* 0, or -1: the reply is none to that command. */
int restore_look_take(struct restore_look *look, const redisReply *reply);

/* RESTORE_ABSENT: Redis does not have the coupon, so it cannot be told, and nothing is written. */
enum restore_state { RESTORE_ABSENT, RESTORE_COVERED, RESTORE_LOST };

/* What became of a message whose last receive has this number. */
enum restore_state restore_state(const struct restore_look *look, int64_t generation, int64_t seq);

/*
 * A number for what was looked at: the next filling of the coupon in the same process of Redis has
 * another one. A message is written once for each of them, because a worker may remove the entry
 * again while its holder does not know yet that it is settled.
 */
int64_t restore_filling(const struct restore_look *look);

struct restore_message {
	struct ulid batch;
	int64_t generation, seq; /* `seq`: of its last receive */
	const char *body;        /* lent */
	size_t body_len;
};

enum restore_result {
	RESTORE_DONE,    /* Redis has the messages, or their receives have outcomes */
	RESTORE_MISSING, /* it does not have the coupon at present */
	RESTORE_FAILED   /* it refused the script, for instance without memory, or did not reply */
};

/* Its reply. */
enum restore_result restore_result_take(const redisReply *reply);

/* EVAL of lua/restore.lua. The words point into it, so it must not be copied. */
struct restore_command {
	int n;
	const char *words[3 + 4 + 4 * RESTORE_MESSAGES_MAX];
	size_t lengths[3 + 4 + 4 * RESTORE_MESSAGES_MAX];
	struct coupon_keys keys;
	struct {
		char batch[ULID_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	} texts[RESTORE_MESSAGES_MAX];
};

/* The script and the bodies are lent to the command. */
void restore_command_make(struct restore_command *command, int64_t coupon, const char *script,
			  const struct restore_message *messages, size_t n);
