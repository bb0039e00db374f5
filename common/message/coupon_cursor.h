/*
 * A cursor: the place in a user's coupons, newest first, at which the next page begins. Clients see
 * it as a text of 54 hexadecimal digits and make nothing of it.
 *
 *	version 1 | time 8 | coupon 8 | slot 2 | check 8	bytes, the highest first
 *
 * The check is a hash of the user and of the bytes before it: it finds a text that is damaged or
 * belongs to another user. It is no secret, because a cursor gives no rights.
 */
#ifndef COMMON_MESSAGE_COUPON_CURSOR_H
#define COMMON_MESSAGE_COUPON_CURSOR_H

#include "common/message/user_id.h"

#include <stddef.h>
#include <stdint.h>

#define COUPON_CURSOR_LEN 54
#define COUPON_CURSOR_SIZE (COUPON_CURSOR_LEN + 1)

/* The last coupon before it. */
struct coupon_cursor {
	int64_t at_us;  /* the time of its receive: microseconds since 1970 */
	int64_t coupon; /* 1 or more */
	int slot;       /* 1 to RECEIVE_SLOT_MAX */
};

/* Writes the text with its NUL; returns `out`. */
char *coupon_cursor_format(const struct coupon_cursor *cursor, const struct user_id *user,
			   char out[COUPON_CURSOR_SIZE]);

/* Parses exactly `len` bytes. 0, or -1 unless coupon_cursor_format() wrote them for this user. */
int coupon_cursor_parse(struct coupon_cursor *cursor, const struct user_id *user, const char *text,
			size_t len);

#endif
