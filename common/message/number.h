/* Texts: whole numbers, strict base64 and parts of URLs. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Coupon ids: positive signed 64-bit integers in canonical decimal (no sign, no leading zero).
 */

#define ID_SIZE 20 /* 19 digits and NUL */

/* Parses exactly `len` bytes. 0, or -1 unless they are an id from 1 to 9223372036854775807. */
int id_parse(const char *text, size_t len, int64_t *id);

/* Writes the id, or 0, with its NUL and returns the length without it. */
size_t id_format(int64_t id, char out[ID_SIZE]);

/* Writes a text without its NUL, or a number; returns the end. */
static inline char *text_append(char *at, const char *text)
{
	size_t len = strlen(text);

	memcpy(at, text, len);
	return at + len;
}

/* Printable ASCII as it is inside a string of JSON; rarely is there anything to escape. */
static inline char *escaped_append(char *at, const char *text, size_t len)
{
	if (!memchr(text, '"', len) && !memchr(text, '\\', len))
		return (char *)memcpy(at, text, len) + len;
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"' || text[i] == '\\')
			*at++ = '\\';
		*at++ = text[i];
	}
	return at;
}

static inline char *number_append(char *at, int64_t number)
{
	return at + id_format(number, at);
}

#define NUMBER_SIZE 24 /* of any 64-bit number, with its NUL */

/* Returns `out`. */
const char *number_text(int64_t number, char out[NUMBER_SIZE]);
/*
 * Parses a number of 1 to 16 digits, as the scripts do. 0, or -1 when it is malformed or above
 * `most`.
 */
int number_parse(const char *text, int64_t most, int64_t *number);

/*
 * Strict base64. libsodium's alone refuses padding that is not of the variant, bits that are left
 * over, and what follows, but up to 1.0.18 it reads each byte from 128 on as the last symbol.
 */

/* Exactly `len` bytes of text, of one of the sodium_base64_VARIANT_…; 0 and how many, or -1. */
int base64_read(const char *text, size_t len, int variant, void *out, size_t size, size_t *n);

/*
 * The bytes that a part of a URL stands for (malloc): every byte but NUL may be percent-encoded.
 * NULL: a % is not followed by two hexadecimal digits, or it is %00.
 */
char *percent_decode(const char *text, size_t len);
