/*
 * The idempotency key of a listed user: distribute/NAME/REPEAT. With the user and the coupon it
 * names one giving, whatever list, line or run it comes from: it never gives two coupons.
 */
#ifndef CTL_DISTRIBUTE_KEY_H
#define CTL_DISTRIBUTE_KEY_H

#include "common/message/receive.h"

#include <stdint.h>

#define KEY_SIZE (RECEIVE_KEY_MAX + 1)

/* The part before the repeat. Returns its length. */
size_t key_prefix(const char *name, char out[KEY_SIZE]);

/* The repeat of a key that begins with the prefix, or 0: it is of something else. */
uint32_t key_repeat(const char *key, size_t prefix_len);

#endif
