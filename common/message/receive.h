/*
 * A receive: one accepted request, written <coupon>.<user>.<batch>.<index>, so that one look-up
 * finds its outcome. The user may contain dots, the other parts do not.
 */
#pragma once

#include "common/message/number.h"

#include <stddef.h>
#include <stdint.h>

/*
 * A batch's id: a ULID (https://github.com/ulid/spec), 48 bits of wall clock in milliseconds and 80
 * random bits. Unique; no code depends on its order. The text is 26 characters of Crockford's base
 * 32 in upper case.
 */

#define ULID_LEN 26
#define ULID_SIZE (ULID_LEN + 1)
#define ULID_UUID_SIZE 37

struct ulid {
	uint8_t bytes[16];
};

/* A new one, its random bits from the kernel. Any thread. */
void ulid_new(struct ulid *ulid, int64_t wall_ms);

/* Writes 26 characters and NUL; returns `out`. */
char *ulid_format(const struct ulid *ulid, char out[ULID_SIZE]);

/* Parses exactly `len` bytes in the one canonical spelling; 0, or -1. */
int ulid_parse(struct ulid *ulid, const char *text, size_t len);

/* When it was made: its first 48 bits, in milliseconds of wall clock. */
int64_t ulid_time_ms(const struct ulid *ulid);

/*
 * Converts to the text of PostgreSQL's uuid with the same 128 bits, and back from it (lower case
 * with hyphens; 0, or -1).
 */
char *ulid_to_uuid(const struct ulid *ulid, char out[ULID_UUID_SIZE]);
int ulid_from_uuid(struct ulid *ulid, const char *text);

/*
 * A user id: 1 to 64 bytes of printable ASCII without spaces ('!' to '~'), chosen by the caller. It
 * is opaque: two are the same when all their bytes are, so `42` and `042` are two users.
 */

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

#define RECEIVE_INDEX_MAX 255 /* a batch holds at most 256 receives */
#define RECEIVE_SIZE (ID_SIZE + USER_ID_SIZE + ULID_SIZE + 4)
#define RECEIVE_KEY_MAX 255 /* bytes of an idempotency key, printable ASCII */
#define RECEIVE_CODE_MAX 39 /* bytes of an exchange code's reference: SET.SERIAL or SET */
#define RECEIVE_TAIL_MAX (RECEIVE_KEY_MAX + 1 + RECEIVE_CODE_MAX)
#define TAG_MAX 32 /* bytes of a tag of campaigns, and which they may be */
#define TAG_BYTES "abcdefghijklmnopqrstuvwxyz0123456789._-"
#define RECEIVE_SLOT_MAX 100 /* the highest per-user limit a coupon may have */

struct receive {
	int64_t coupon;
	struct user_id user;
	struct ulid batch;
	int index;
};

/* Writes the text with its NUL and returns the length without it. */
size_t receive_format(const struct receive *receive, char out[RECEIVE_SIZE]);

/* Parses exactly `len` bytes in the canonical spelling; 0, or -1. */
int receive_parse(struct receive *receive, const char *text, size_t len);

/* Whether they are 1 to `most` bytes of printable ASCII (space to tilde). */
int printable_valid(const char *text, size_t len, size_t most);

/* Whether these `len` bytes are an idempotency key: 1 to 255 bytes of printable ASCII. */
int receive_key_valid(const char *text, size_t len);

/*
 * Whether these `len` bytes name an exchange code: SET.SERIAL, two ids but for a serial of 0, or
 * SET alone for a word, which many users claim.
 */
int receive_code_valid(const char *text, size_t len);

/* Writes SET.SERIAL, of a set from 1 and a serial from 0, and its NUL. */
void receive_code_format(int64_t set, int64_t serial, char out[RECEIVE_CODE_MAX + 1]);

/*
 * The tail of a record, of these `len` bytes: the key, which may be empty, and if the receive has
 * claimed a code, a tab and the code. 0 and the length of the key, or -1.
 */
int receive_tail_parse(const char *text, size_t len, size_t *key_len);

/* The length of the key of such a tail. */
size_t receive_tail_key_len(const char *tail);

/* The code in a tail whose key has `key_len` bytes; `*code_len` is 0 if it has none. */
const char *receive_tail_code(const char *tail, size_t len, size_t key_len, size_t *code_len);
