/*
 * The arguments of a statement: numbers, texts, and arrays, which are built element by element in
 * PostgreSQL's binary form. The statement must give each its type, as in `$1::bigint[]`.
 */
#pragma once

#include "common/message/number.h"
#include "common/message/receive.h"

#include <stddef.h>
#include <stdint.h>

enum postgres_type { POSTGRES_INT2, POSTGRES_INT4, POSTGRES_INT8, POSTGRES_TEXT, POSTGRES_UUID };

/* An array of one dimension. Empty while only its type is set, as by postgres_array_init(). */
struct postgres_array {
	enum postgres_type type; /* the type of the elements */
	size_t n;
	char *data; /* a head of 20 bytes, then for each element its length and its bytes */
	size_t len;
	size_t room;
};

void postgres_array_init(struct postgres_array *array, enum postgres_type type);
void postgres_array_fini(struct postgres_array *array);
void postgres_array_clear(struct postgres_array *array); /* no elements; keeps the memory */

/*
 * Each adds one element, which is copied. The element must be of the array's type, and a number
 * within the range of that type: anything else is a bug.
 */
void postgres_array_add_number(struct postgres_array *array, int64_t number);
void postgres_array_add_text(struct postgres_array *array, const char *text, size_t len);
void postgres_array_add_uuid(struct postgres_array *array, const struct ulid *ulid);
void postgres_array_add_null(struct postgres_array *array);

/* One argument. What it points to is lent until the statement has been sent. */
struct postgres_argument {
	enum { POSTGRES_OF_NUMBER, POSTGRES_OF_TEXT, POSTGRES_OF_ARRAY } kind;
	int64_t number;
	const char *text;
	const struct postgres_array *array;
};

struct postgres_argument postgres_number(int64_t number);
struct postgres_argument postgres_text(const char *text); /* NULL: SQL's NULL */
struct postgres_argument postgres_array(const struct postgres_array *array);

/* The arguments of a call that takes their number and the arguments. */
#define POSTGRES_ARGUMENTS(...)                                           \
	(int)(sizeof((const struct postgres_argument[]){ __VA_ARGS__ }) / \
	      sizeof(struct postgres_argument)),                          \
		(const struct postgres_argument[])                        \
	{                                                                 \
		__VA_ARGS__                                               \
	}

/*
 * The argument as libpq takes it; `scratch` is used for numbers and for arrays without elements.
 * `*len` and `*is_binary` matter for arrays alone.
 */
const char *postgres_argument_value(const struct postgres_argument *argument,
				    char scratch[NUMBER_SIZE], int *len, int *is_binary);

/*
 * The arguments of a statement about receives: arrays of their coupons, users, batches and indexes,
 * in this order. One about users and coupons takes the first two.
 */

#define RECEIVE_ARGS_N 4

struct receive_args {
	struct postgres_array arrays[RECEIVE_ARGS_N];
	struct postgres_argument arguments[RECEIVE_ARGS_N]; /* the arrays */
};

void receive_args_init(struct receive_args *args);
void receive_args_fini(struct receive_args *args);
void receive_args_add(struct receive_args *args, const struct receive *receive); /* copied */

/*
 * The arguments of settle(): arrays, built receive by receive. Those of the codes and of the traces
 * are empty unless a receive has one.
 */

#define SETTLE_ARGS_N 11

/* What it points to is copied. */
struct settle_receive {
	int64_t coupon;
	int64_t generation;
	int64_t seq;
	const struct ulid *batch;
	int index;
	const struct user_id *user;
	int slot;
	const char *tail; /* the key and the code: receive_tail_parse() */
	size_t key_len, tail_len;
	int64_t at_ms;
	const char *trace; /* NULL or "": none */
};

struct settle_args {
	struct postgres_array arrays[SETTLE_ARGS_N];
	int has_codes;
	int has_traces;
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
