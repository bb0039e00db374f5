/*
 * A receive: one accepted request, written <coupon>.<user>.<batch>.<index>, so that one look-up
 * finds its outcome. The user may contain dots, the other parts do not.
 */
#ifndef COMMON_MESSAGE_RECEIVE_H
#define COMMON_MESSAGE_RECEIVE_H

#include "common/message/id.h"
#include "common/message/ulid.h"
#include "common/message/user_id.h"

#define RECEIVE_INDEX_MAX 255 /* a batch holds at most 256 receives */
#define RECEIVE_SIZE (ID_SIZE + USER_ID_SIZE + ULID_SIZE + 4)
#define RECEIVE_KEY_MAX 64  /* bytes of an idempotency key, printable ASCII */
#define RECEIVE_CODE_MAX 39 /* bytes of an exchange code's reference: SET.SERIAL or SET */
#define RECEIVE_TAIL_MAX (RECEIVE_KEY_MAX + 1 + RECEIVE_CODE_MAX)
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

/*
 * Whether these `len` bytes are an idempotency key: 1 to 64 bytes of printable ASCII (space to
 * tilde).
 */
int receive_key_valid(const char *text, size_t len);

/*
 * Whether these `len` bytes name an exchange code: SET.SERIAL, two ids but for a serial of 0, or
 * SET alone for a word, which many users redeem.
 */
int receive_code_valid(const char *text, size_t len);

/* Writes SET.SERIAL, of a set from 1 and a serial from 0, and its NUL. */
void receive_code_format(int64_t set, int64_t serial, char out[RECEIVE_CODE_MAX + 1]);

/*
 * The tail of a record, of these `len` bytes: the key, which may be empty, and if the receive has
 * redeemed a code, a tab and the code. 0 and the length of the key, or -1.
 */
int receive_tail_parse(const char *text, size_t len, size_t *key_len);

/* The length of the key of such a tail. */
size_t receive_tail_key_len(const char *tail);

/* The code in a tail whose key has `key_len` bytes; `*code_len` is 0 if it has none. */
const char *receive_tail_code(const char *tail, size_t len, size_t key_len, size_t *code_len);

#endif
