/*
 * Common to the fuzz targets. A target is one file with LLVMFuzzerTestOneInput(): it feeds the
 * bytes to a parser and checks with check() what must hold for every input. `make fuzz` links it
 * with libFuzzer, `make test` with replay.c.
 */
#pragma once

#include "common/check.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input, read from the front; after its end every value is 0. */
struct bytes {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t bytes_u8(struct bytes *bytes)
{
	if (bytes->left == 0)
		return 0;
	bytes->left--;
	return *bytes->at++;
}

/* At most `n` bytes; `*len` is how many. */
static inline const uint8_t *bytes_take(struct bytes *bytes, size_t n, size_t *len)
{
	const uint8_t *at = bytes->at;

	*len = n < bytes->left ? n : bytes->left;
	bytes->at += *len;
	bytes->left -= *len;
	return at;
}

/*
 * The length of the next piece when `left` bytes are cut at random places, the same ones for the
 * same seed.
 */
static inline size_t cut_next(uint32_t *seed, size_t left)
{
	size_t piece;

	*seed = *seed * 1664525u + 1013904223u;
	piece = 1 + (*seed >> 16) % ((*seed & 0x8000) ? 4 : 96);
	return piece < left ? piece : left;
}
