/*
 * Strict base64, and texts of URLs. libsodium's alone refuses padding that is not of the variant,
 * bits that are left over, and what follows, but up to 1.0.18 it reads each byte from 128 on as
 * the last symbol.
 */
#pragma once

#include <sodium.h>
#include <stddef.h>

/* Exactly `len` bytes of text, of one of the sodium_base64_VARIANT_…; 0 and how many, or -1. */
int base64_read(const char *text, size_t len, int variant, void *out, size_t size, size_t *n);

/*
 * The bytes that a part of a URL stands for (malloc): every byte but NUL may be percent-encoded.
 * NULL: a % is not followed by two hexadecimal digits, or it is %00.
 */
char *percent_decode(const char *text, size_t len);
