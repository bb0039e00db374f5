/*
 * Forged exchange codes: none is taken, and none takes another time than the others. FORGED_TRIES
 * is how many are made up (100,000,000 take some minutes); SEED repeats a run.
 */
#include "codes/book.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define KEYS                                                                     \
	"1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n2 " \
	"100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define SETS 100          /* of each key */
#define SET_CODES 1000000 /* of each set */
#define SYMBOLS 13
#define PIECE 1000

/* How a text is made up. */
enum kind { ANY, ONE_SYMBOL_WRONG, TWO_SWAPPED, NEXT_TO_A_CODE, REAL, KINDS };

static const char *const names[KINDS] = { "any text", "one symbol wrong", "two swapped",
					  "the last symbol counted on", "a code" };

struct forgery {
	struct code_form form;
	struct code_space *spaces[2];
	int64_t firsts[SETS];
	struct code_book *book;
	uint64_t random;
};

static uint64_t random_next(struct forgery *f)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	return f->random ^= f->random << 17;
}

static int firsts_compare(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

static void book_make(struct forgery *f)
{
	char why[CODE_WHY_SIZE];
	struct code_keys keys;

	assert_int_equal(code_keys_parse(&keys, KEYS, strlen(KEYS), why), 0);
	assert_int_equal(code_form_parse(&f->form, "#############", CODE_ALPHABET, why), 0);
	f->book = code_book_new();
	for (int i = 0; i < SETS; i++)
		f->firsts[i] = (int64_t)(random_next(f) >> 2);
	qsort(f->firsts, SETS, sizeof(f->firsts[0]), firsts_compare);
	for (int key = 0; key < 2; key++) {
		f->spaces[key] = code_space_new(&f->form, &keys.list[key]);
		code_book_add_space(f->book, key + 1, f->spaces[key]);
		for (int i = 0; i < SETS; i++)
			code_book_add_set(f->book, key + 1,
					  &(struct code_set){ .id = key * SETS + i + 1,
							      .coupon = 1001,
							      .first = f->firsts[i],
							      .count = SET_CODES });
	}
}

static char symbol(struct forgery *f)
{
	return CODE_ALPHABET[random_next(f) % 32];
}

static void code_write(struct forgery *f, char *out)
{
	int64_t first = f->firsts[random_next(f) % SETS];

	code_space_write(f->spaces[random_next(f) % 2], &f->form,
			 first + (int64_t)(random_next(f) % SET_CODES), 1, out);
}

/* Two symbols that differ; no code has thirteen times the same. */
static void swap(struct forgery *f, char *text)
{
	size_t a = random_next(f) % SYMBOLS, b = a;
	char was = text[a];

	while (text[b] == was)
		b = random_next(f) % SYMBOLS;
	text[a] = text[b];
	text[b] = was;
}

static void text_make(struct forgery *f, enum kind kind, char *out)
{
	const char *at;

	if (kind == ANY) {
		for (int i = 0; i < SYMBOLS; i++)
			out[i] = symbol(f);
		return;
	}
	code_write(f, out);
	if (kind == ONE_SYMBOL_WRONG) {
		char *wrong = &out[random_next(f) % SYMBOLS], was = *wrong;

		while (*wrong == was)
			*wrong = symbol(f);
	} else if (kind == TWO_SWAPPED) {
		swap(f, out);
	} else if (kind == NEXT_TO_A_CODE) {
		at = strchr(CODE_ALPHABET, out[SYMBOLS - 1]);
		out[SYMBOLS - 1] = CODE_ALPHABET[(at - CODE_ALPHABET + 1) % 32];
	}
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* How many of a piece of texts are codes; adds the time of reading them. */
static int piece_try(struct forgery *f, enum kind kind, int64_t *spent_ns)
{
	static char texts[PIECE][SYMBOLS + 1];
	struct code_found found;
	int64_t begun_ns;
	int taken = 0;

	for (int i = 0; i < PIECE; i++)
		text_make(f, kind, texts[i]);
	begun_ns = now_ns();
	for (int i = 0; i < PIECE; i++)
		taken += code_book_find(f->book, texts[i], SYMBOLS, &found) == 0;
	*spent_ns += now_ns() - begun_ns;
	return taken;
}

static int64_t number_of(const char *name, int64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoll(text, NULL, 10) : otherwise;
}

static void test_none_is_taken(void **state)
{
	int64_t seed = number_of("SEED", now_ns()), tries = 0, spent_ns[KINDS] = { 0 };
	const int64_t wanted = number_of("FORGED_TRIES", 40000);
	struct forgery f = { .random = (uint64_t)seed | 1 };
	int taken[KINDS] = { 0 };

	(void)state;
	book_make(&f);
	for (; tries < wanted; tries += PIECE * (KINDS - 1))
		for (int kind = ANY; kind < KINDS; kind++)
			taken[kind] += piece_try(&f, (enum kind)kind, &spent_ns[kind]);
	for (int kind = ANY; kind < KINDS; kind++)
		printf("%-28s %12lld tries, %d taken, %lld ns each\n", names[kind],
		       (long long)(tries / (KINDS - 1)), taken[kind],
		       (long long)(spent_ns[kind] / (tries / (KINDS - 1))));
	/* 2 * 10^8 codes of 3.7 * 10^19 texts: 10^8 tries hit with a chance of 1 in 1,800. */
	for (int kind = ANY; kind < REAL; kind++)
		if (taken[kind] > 0)
			fail_msg("%s: taken; SEED=%lld", names[kind], (long long)seed);
	assert_int_equal(taken[REAL], tries / (KINDS - 1));
	code_book_free(f.book);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_none_is_taken) };

	return cmocka_run_group_tests_name("codes forged", tests, NULL, NULL);
}
