/*
 * A user id: 1 to 64 bytes of printable ASCII without spaces ('!' to '~'), chosen by the caller. It
 * is opaque: two are the same when all their bytes are, so `42` and `042` are two users.
 */
#ifndef COMMON_MESSAGE_USER_ID_H
#define COMMON_MESSAGE_USER_ID_H

#include <stddef.h>
#include <stdint.h>

#define USER_ID_MAX 64
#define USER_ID_SIZE (USER_ID_MAX + 1) /* with its NUL */
#define USER_ID_WHY_SIZE 128
#define USER_ID_ALLOWED "1 to 64 bytes of printable ASCII without spaces"

struct user_id {
	unsigned char len; /* 0: none */
	char text[USER_ID_SIZE];
};

/* Exactly `len` bytes. 0, or -1 unless they are an id. */
int user_id_parse(struct user_id *user, const char *text, size_t len);

/* How many bytes there are before the first that no id contains; `len`: there is none. */
size_t user_id_valid_length(const char *text, size_t len);

/*
 * Writes why these bytes, which are no id, are none: where the first wrong byte is (from 1), or how
 * many there are, and what is allowed.
 */
void user_id_why(const char *text, size_t len, char out[USER_ID_WHY_SIZE]);

/* The id that is the decimal text of the number, which is 0 or more. */
struct user_id user_id_of_number(int64_t number);

int user_id_same(const struct user_id *a, const struct user_id *b);

/* Negative, 0 or positive: by their bytes, as strcmp() and the collation "C" order them. */
int user_id_compare(const struct user_id *a, const struct user_id *b);

#endif
