/*
 * A user id: its bytes are the caller's. Two are the same when all their bytes are.
 */
#ifndef COMMON_MESSAGE_USER_ID_H
#define COMMON_MESSAGE_USER_ID_H

#include "common/message/id.h"

#define USER_ID_SIZE ID_SIZE /* with its NUL */

struct user_id {
	unsigned char len; /* 0: none */
	char text[USER_ID_SIZE];
};

/* Exactly `len` bytes. 0, or -1 unless they are an id as id_parse() takes it. */
int user_id_parse(struct user_id *user, const char *text, size_t len);

/* The id that is written as this number, which is 1 or more, and back. */
struct user_id user_id_of_number(int64_t number);
int64_t user_id_number(const struct user_id *user); /* 0: none */

int user_id_same(const struct user_id *a, const struct user_id *b);

/* Negative, 0 or positive: by their bytes, as strcmp() and the collation "C" order them. */
int user_id_compare(const struct user_id *a, const struct user_id *b);

#endif
