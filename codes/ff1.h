/*
 * FF1 of NIST SP 800-38G: a permutation of all strings of `digits` digits of a radix, by a key and
 * a tweak. It turns numbers into texts of the same length that look random, and back.
 *
 * A string is two numbers, of its first and its last digits. Each must fit into 64 bits.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FF1_STRINGS_LEAST 1000000 /* the standard's minimum of radix^digits */

struct ff1_string {
	uint64_t first; /* the number of the first digits/2 digits, rounded down */
	uint64_t last;  /* of the others */
};

struct ff1;

/* radix^digits, or 0 when FF1 or this implementation does not allow that many or that few. */
unsigned __int128 ff1_strings(unsigned radix, unsigned digits);

/* radix^n, or 0 when it does not fit into 64 bits. */
uint64_t ff1_power(unsigned radix, unsigned n);

/* `key_len` is 16, 24 or 32 bytes. ff1_strings() of the radix and digits must not be 0. */
struct ff1 *ff1_new(const uint8_t *key, size_t key_len, unsigned radix, unsigned digits,
		    const void *tweak, size_t tweak_len);
void ff1_free(struct ff1 *ff1); /* wipes the key */

enum ff1_way { FF1_ENCRYPT, FF1_DECRYPT };

/* Replaces `n` strings; many at once are faster. Not from two threads at once. */
void ff1_permute(struct ff1 *ff1, enum ff1_way way, struct ff1_string *strings, size_t n);
