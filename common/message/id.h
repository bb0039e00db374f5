/*
 * Coupon ids: positive signed 64-bit integers in canonical decimal (no sign, no leading zero).
 */
#ifndef COMMON_MESSAGE_ID_H
#define COMMON_MESSAGE_ID_H

#include <stddef.h>
#include <stdint.h>

#define ID_SIZE 20 /* 19 digits and NUL */

/* Parses exactly `len` bytes. 0, or -1 unless they are an id from 1 to 9223372036854775807. */
int id_parse(const char *text, size_t len, int64_t *id);

/* Writes the id (1 or more) with its NUL and returns the length without it. */
size_t id_format(int64_t id, char out[ID_SIZE]);

#endif
