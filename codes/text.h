/*
 * The texts of codes: the one spelling of a code that others made, and of a word for all, is its
 * letters in upper case, without spaces and dashes.
 */
#ifndef CODES_TEXT_H
#define CODES_TEXT_H

#include <stddef.h>

#define CODE_OTHERS_MAX 64
#define CODE_OTHERS_SIZE (CODE_OTHERS_MAX + 1)
#define CODE_OTHERS_ALLOWED "1 to 64 bytes of printable ASCII, not counting spaces and dashes"

/* As a user writes it. */
struct code_text {
	const char *text;
	size_t len;
};

/* Writes the spelling of exactly `len` bytes with a NUL. 0, or -1 unless it is allowed. */
int code_text_spell(const char *text, size_t len, char out[CODE_OTHERS_SIZE]);

#endif
