/* FF1 against the nine samples that NIST publishes with SP 800-38G, and as a permutation. */
#include "codes/ff1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIGITS "0123456789abcdefghijklmnopqrstuvwxyz"

static const uint8_t key[32] = {
	0x2B, 0x7E, 0x15, 0x16, 0x28, 0xAE, 0xD2, 0xA6, 0xAB, 0xF7, 0x15,
	0x88, 0x09, 0xCF, 0x4F, 0x3C, 0xEF, 0x43, 0x59, 0xD8, 0xD5, 0x80,
	0xAA, 0x4F, 0x7F, 0x03, 0x6D, 0x6F, 0x04, 0xFC, 0x6A, 0x94,
};

static const struct sample {
	size_t key_len;
	unsigned radix;
	const char *tweak, *plain, *cipher;
} samples[] = {
	{ 16, 10, "", "0123456789", "2433477484" },
	{ 16, 10, "9876543210", "0123456789", "6124200773" },
	{ 16, 36, "7777pqrs777", "0123456789abcdefghi", "a9tv40mll9kdu509eum" },
	{ 24, 10, "", "0123456789", "2830668132" },
	{ 24, 10, "9876543210", "0123456789", "2496655549" },
	{ 24, 36, "7777pqrs777", "0123456789abcdefghi", "xbj3kv35jrawxv32ysr" },
	{ 32, 10, "", "0123456789", "6657667009" },
	{ 32, 10, "9876543210", "0123456789", "1001623463" },
	{ 32, 36, "7777pqrs777", "0123456789abcdefghi", "xs8a0azh2avyalyzuwd" },
};

static uint64_t number_of(const char *text, size_t n, unsigned radix)
{
	uint64_t number = 0;

	for (size_t i = 0; i < n; i++)
		number = number * radix + (uint64_t)(strchr(DIGITS, text[i]) - DIGITS);
	return number;
}

static struct ff1_string string_of(const char *text, unsigned radix)
{
	size_t n = strlen(text);

	return (struct ff1_string){ .first = number_of(text, n / 2, radix),
				    .last = number_of(text + n / 2, n - n / 2, radix) };
}

static void test_samples(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
		const struct sample *s = &samples[i];
		struct ff1 *ff1 = ff1_new(key, s->key_len, s->radix, (unsigned)strlen(s->plain),
					  s->tweak, strlen(s->tweak));
		struct ff1_string plain = string_of(s->plain, s->radix), one = plain;
		struct ff1_string cipher = string_of(s->cipher, s->radix);

		ff1_permute(ff1, FF1_ENCRYPT, &one, 1);
		assert_int_equal(one.first, cipher.first);
		assert_int_equal(one.last, cipher.last);
		ff1_permute(ff1, FF1_DECRYPT, &one, 1);
		assert_memory_equal(&one, &plain, sizeof(one));
		ff1_free(ff1);
	}
}

/* Every string of 10^6: each once, and back. Half of them in odd numbers at once. */
static void test_is_a_permutation(void **state)
{
	static struct ff1_string strings[1000000];
	static char seen[1000000];
	struct ff1 *ff1 = ff1_new(key, 32, 10, 6, "x", 1);

	(void)state;
	for (unsigned i = 0; i < 1000000; i++)
		strings[i] = (struct ff1_string){ .first = i / 1000, .last = i % 1000 };
	ff1_permute(ff1, FF1_ENCRYPT, strings, 500001);
	for (unsigned i = 500001; i < 1000000; i++)
		ff1_permute(ff1, FF1_ENCRYPT, strings + i, 1);
	for (unsigned i = 0; i < 1000000; i++) {
		uint64_t at = strings[i].first * 1000 + strings[i].last;

		assert_true(strings[i].first < 1000 && strings[i].last < 1000 && !seen[at]);
		seen[at] = 1;
	}
	ff1_permute(ff1, FF1_DECRYPT, strings, 1000000);
	for (unsigned i = 0; i < 1000000; i++)
		assert_true(strings[i].first == i / 1000 && strings[i].last == i % 1000);
	ff1_free(ff1);
}

/* The ends of the range, also where a half is nearly 64 bits. */
static void test_sizes(void **state)
{
	static const unsigned sizes[][2] = { { 2, 20 },  { 2, 126 }, { 3, 13 },  { 10, 38 },
					     { 32, 13 }, { 32, 24 }, { 36, 24 }, { 62, 20 } };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned radix = sizes[i][0], n = sizes[i][1];
		uint64_t first = ff1_power(radix, n / 2), last = ff1_power(radix, n - n / 2);
		struct ff1_string ends[] = { { 0, 0 }, { first - 1, last - 1 }, { 0, last - 1 } };
		struct ff1_string strings[3];
		struct ff1 *ff1 = ff1_new(key, 32, radix, n, "tweak of 18 bytes.", 18);

		assert_true(ff1_strings(radix, n) == (unsigned __int128)first * last);
		memcpy(strings, ends, sizeof(ends));
		ff1_permute(ff1, FF1_ENCRYPT, strings, 3);
		for (int k = 0; k < 3; k++)
			assert_true(strings[k].first < first && strings[k].last < last);
		assert_memory_not_equal(strings, ends, sizeof(ends));
		ff1_permute(ff1, FF1_DECRYPT, strings, 3);
		assert_memory_equal(strings, ends, sizeof(ends));
		ff1_free(ff1);
	}
}

static void test_refuses_sizes(void **state)
{
	(void)state;
	assert_true(ff1_strings(10, 5) == 0);
	assert_true(ff1_strings(10, 6) == 1000000);
	assert_true(ff1_strings(10, 39) == 0);
	assert_true(ff1_strings(32, 25) == 0);
	assert_true(ff1_strings(32, 3) == 0);
	assert_true(ff1_strings(2, 128) == 0);
	assert_true(ff1_strings(1, 64) == 0 && ff1_strings(0, 64) == 0);
	assert_true(ff1_strings(36, 0) == 0 && ff1_strings(36, 1) == 0);
	assert_true(ff1_power(2, 63) == UINT64_C(1) << 63);
	assert_int_equal(ff1_power(2, 64), 0);
}

static void test_key_and_tweak_matter(void **state)
{
	struct ff1_string plain = { .first = 1, .last = 2 }, a = plain, b = plain, c = plain;
	struct ff1 *one = ff1_new(key, 32, 32, 13, "a", 1), *two = ff1_new(key, 32, 32, 13, "b", 1);
	struct ff1 *three = ff1_new(key, 16, 32, 13, "a", 1);

	(void)state;
	ff1_permute(one, FF1_ENCRYPT, &a, 1);
	ff1_permute(two, FF1_ENCRYPT, &b, 1);
	ff1_permute(three, FF1_ENCRYPT, &c, 1);
	assert_memory_not_equal(&a, &b, sizeof(a));
	assert_memory_not_equal(&a, &c, sizeof(a));
	ff1_free(one);
	ff1_free(two);
	ff1_free(three);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_samples),
		cmocka_unit_test(test_is_a_permutation),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_refuses_sizes),
		cmocka_unit_test(test_key_and_tweak_matter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
