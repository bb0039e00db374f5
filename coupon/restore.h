/*
 * What copies.h asks Redis and tells it, as commands and replies:
 *
 *	HMGET of the coupon ──▶ restore_look_take() ──▶ lua/restore.lua ──▶ restore_result_take()
 *
 * The script judges again, so that nothing happens if the coupon has changed in between. No I/O.
 */
#pragma once

#include "common/message/number.h"
#include "common/redis/redis.h"
#include "coupon/copies.h"

#include <hiredis/hiredis.h>

/* The words of the command whose reply restore_look_take() reads. */
#define RESTORE_LOOK_WORDS(key) "HMGET", key, "generation", "seq", "placeholder"
#define RESTORE_LOOK_WORDS_N 5

/* 0, or -1: the reply is none to that command. */
int restore_look_take(struct copies_look *look, const redisReply *reply);

/* Reads the reply to lua/restore.lua; NULL: none was received. */
enum copies_result restore_result_take(const redisReply *reply);

/* EVAL of lua/restore.lua. The words point into it, so it must not be copied. */
struct restore_command {
	int n;
	const char *words[3 + 4 + 4 * COPIES_MESSAGES_MAX];
	size_t lengths[3 + 4 + 4 * COPIES_MESSAGES_MAX];
	struct coupon_keys keys;
	struct {
		char batch[ULID_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	} texts[COPIES_MESSAGES_MAX];
};

/* The script and the bodies are lent to the command. */
void restore_command_make(struct restore_command *command, int64_t coupon, const char *script,
			  const struct copy *const *messages, size_t n);
