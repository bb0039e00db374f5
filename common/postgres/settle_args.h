/*
 * The arguments of settle(): ten arrays, built receive by receive. That of the codes stays empty
 * unless a receive has one.
 */
#ifndef COMMON_POSTGRES_SETTLE_ARGS_H
#define COMMON_POSTGRES_SETTLE_ARGS_H

#include "common/message/receive.h"
#include "common/postgres/argument.h"

#define SETTLE_ARGS_N 10

/* What it points to is copied. */
struct settle_receive {
	int64_t coupon;
	int64_t generation;
	int64_t seq;
	const struct ulid *batch;
	int index;
	const struct user_id *user;
	int slot;
	const char *tail; /* of these lengths; receive_tail_parse() */
	size_t key_len, tail_len;
	int64_t at_ms;
};

struct settle_args {
	struct postgres_array arrays[SETTLE_ARGS_N];
	int has_codes;
};

void settle_args_init(struct settle_args *args);
void settle_args_fini(struct settle_args *args);

/* No receives; keeps the memory. */
void settle_args_clear(struct settle_args *args);
void settle_args_add(struct settle_args *args, const struct settle_receive *receive);
size_t settle_args_receives(const struct settle_args *args);

/* As the arguments of the statement; lent from `args`. */
void settle_args_arguments(const struct settle_args *args,
			   struct postgres_argument arguments[SETTLE_ARGS_N]);

#endif
