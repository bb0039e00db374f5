/*
 * The arguments of a statement: numbers, texts, and arrays, which are built element by element in
 * PostgreSQL's binary form. The statement must give each its type, as in `$1::bigint[]`.
 */
#ifndef COMMON_POSTGRES_ARGUMENT_H
#define COMMON_POSTGRES_ARGUMENT_H

#include "common/message/number.h"
#include "common/message/ulid.h"

#include <stddef.h>
#include <stdint.h>

enum postgres_type { POSTGRES_INT2, POSTGRES_INT4, POSTGRES_INT8, POSTGRES_TEXT, POSTGRES_UUID };

/* An array of one dimension. Empty while only its type is set, as by postgres_array_init(). */
struct postgres_array {
	enum postgres_type type; /* of its elements */
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

/* Arguments where a function takes their number and their array. */
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

#endif
