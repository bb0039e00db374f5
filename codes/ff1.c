/*
 * Names as in SP 800-38G, section 5.2: the halves A and B of u and v digits, P and Q, the numbers
 * of bytes b and d. P and all blocks of Q but the last are the same for every string and round, so
 * a round of a string takes one block of AES. Those of up to LANES strings are encrypted together:
 * the processor overlaps them.
 */
#include "codes/ff1.h"

#include "common/check.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 16
#define LANES 64
#define ROUNDS 10

struct ff1 {
	EVP_CIPHER_CTX *aes;
	uint64_t first_n, last_n; /* radix^u, radix^v */
	size_t b, d;
	uint8_t begin[BLOCK]; /* what is encrypted last, but for the round and the number */
};

uint64_t ff1_power(unsigned radix, unsigned n)
{
	uint64_t power = 1;

	for (unsigned i = 0; i < n; i++)
		if (__builtin_mul_overflow(power, radix, &power))
			return 0;
	return power;
}

unsigned __int128 ff1_strings(unsigned radix, unsigned digits)
{
	uint64_t first = ff1_power(radix, digits / 2), last = ff1_power(radix, digits - digits / 2);
	unsigned __int128 strings = (unsigned __int128)first * last;

	/* With first != 0, since u <= v. */
	return radix < 2 || digits < 2 || strings < FF1_STRINGS_LEAST ? 0 : strings;
}

/* Encrypts `n` blocks in place, each by itself. */
static void aes(const struct ff1 *ff1, uint8_t *blocks, size_t n)
{
	int len;

	check(EVP_EncryptUpdate(ff1->aes, blocks, &len, blocks, (int)(n * BLOCK)) == 1);
	check(len == (int)(n * BLOCK));
}

/* One more block of the CBC-MAC that the standard calls PRF. */
static void mac_block(const struct ff1 *ff1, uint8_t mac[BLOCK], const uint8_t *block)
{
	for (size_t i = 0; i < BLOCK; i++)
		mac[i] ^= block[i];
	aes(ff1, mac, 1);
}

struct ff1 *ff1_new(const uint8_t *key, size_t key_len, unsigned radix, unsigned digits,
		    const void *tweak, size_t tweak_len)
{
	struct ff1 *ff1 = calloc(1, sizeof(*ff1));
	uint8_t p[BLOCK] = {
		1, 2, 1, 0, (uint8_t)(radix >> 8), (uint8_t)radix, ROUNDS, (uint8_t)(digits / 2)
	};
	uint8_t *q;
	size_t blocks_n;
	char cipher[16];

	snprintf(cipher, sizeof(cipher), "AES-%u-ECB", (unsigned)key_len * 8);
	check(ff1 != NULL && ff1_strings(radix, digits) != 0 && radix <= 65536);
	ff1->first_n = ff1_power(radix, digits / 2);
	ff1->last_n = ff1_power(radix, digits - digits / 2);
	while (ff1->b < 8 && (ff1->last_n - 1) >> (8 * ff1->b))
		ff1->b++;
	ff1->d = 4 * ((ff1->b + 3) / 4) + 4;
	ff1->aes = checked(EVP_CIPHER_CTX_new());
	check(EVP_EncryptInit_ex(ff1->aes, EVP_get_cipherbyname(cipher), NULL, key, NULL) == 1);
	check(EVP_CIPHER_CTX_set_padding(ff1->aes, 0) == 1);

	/* P and Q up to the round and the number, which end the last block. */
	blocks_n = (tweak_len + 1 + ff1->b + BLOCK - 1) / BLOCK;
	q = checked(calloc(blocks_n, BLOCK));
	if (tweak_len)
		memcpy(q, tweak, tweak_len);
	memcpy(p + 8, &(uint32_t){ htobe32(digits) }, 4);
	memcpy(p + 12, &(uint32_t){ htobe32((uint32_t)tweak_len) }, 4);
	mac_block(ff1, ff1->begin, p);
	for (size_t i = 0; i + 1 < blocks_n; i++)
		mac_block(ff1, ff1->begin, q + i * BLOCK);
	for (size_t i = 0; i < BLOCK; i++)
		ff1->begin[i] ^= q[(blocks_n - 1) * BLOCK + i];
	free(q);
	return ff1;
}

void ff1_free(struct ff1 *ff1)
{
	EVP_CIPHER_CTX_free(ff1->aes);
	OPENSSL_cleanse(ff1, sizeof(*ff1));
	free(ff1);
}

/*
 * Instead of exchanging the halves, the rounds alternate: one half goes into a round, and changes
 * the other one, which is below `n`. At most LANES strings.
 */
static void round_do(const struct ff1 *ff1, unsigned round, enum ff1_way way,
		     struct ff1_string *strings, size_t lanes_n)
{
	uint8_t blocks[LANES][BLOCK];
	uint64_t n = round % 2 == 0 ? ff1->first_n : ff1->last_n;

	for (size_t i = 0; i < lanes_n; i++) {
		uint64_t half = round % 2 == 0 ? strings[i].last : strings[i].first;

		memcpy(blocks[i], ff1->begin, BLOCK);
		for (size_t k = 0; k < ff1->b; k++)
			blocks[i][BLOCK - 1 - k] ^= (uint8_t)(half >> (8 * k));
		blocks[i][BLOCK - 1 - ff1->b] ^= (uint8_t)round;
	}
	aes(ff1, blocks[0], lanes_n);
	for (size_t i = 0; i < lanes_n; i++) {
		uint64_t *out = round % 2 == 0 ? &strings[i].first : &strings[i].last, number, left;
		unsigned __int128 y = 0;

		/* The standard's y modulo `n`, which is a power of 2 if the radix is. */
		for (size_t k = 0; k < ff1->d; k++)
			y = y << 8 | blocks[i][k];
		number = (n & (n - 1)) == 0 ? (uint64_t)y & (n - 1) : (uint64_t)(y % n);

		/* The sum with it, or the difference, modulo `n`. Neither overflows. */
		if (way == FF1_DECRYPT)
			number = n - number;
		left = n - number;
		*out = *out < left ? *out + number : *out - left;
	}
}

void ff1_permute(struct ff1 *ff1, enum ff1_way way, struct ff1_string *strings, size_t n)
{
	for (size_t i = 0; i < n; i += LANES)
		for (unsigned k = 0; k < ROUNDS; k++)
			round_do(ff1, way == FF1_DECRYPT ? ROUNDS - 1 - k : k, way, strings + i,
				 n - i < LANES ? n - i : LANES);
}
