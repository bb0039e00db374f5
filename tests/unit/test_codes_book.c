/* Spaces of codes, the book of sets, and keys. */
#include "codes/book.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define KEY_1 "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define KEY_2 "2 100102030405060708090A0B0C0D0E0F101112131415161718191a1b1c1d1e1f\n"

static struct code_form form_of(const char *pattern, const char *alphabet)
{
	char why[CODE_WHY_SIZE];
	struct code_form form;

	if (code_form_parse(&form, pattern, alphabet, why))
		fail_msg("%s", why);
	return form;
}

static struct code_keys keys_of(const char *text)
{
	char why[CODE_WHY_SIZE];
	struct code_keys keys;

	if (code_keys_parse(&keys, text, strlen(text), why))
		fail_msg("%s", why);
	return keys;
}

static int64_t position_of(struct code_space *space, const char *text, size_t len)
{
	const struct code_text one = { .text = text, .len = len };
	int64_t position;

	code_space_read(space, &one, 1, &position);
	return position;
}

/* Every position of a small space has one text, and every text one position. */
static void test_is_a_bijection(void **state)
{
	struct code_keys keys = keys_of(KEY_1);
	struct code_form form = form_of("A#-##-###", "0123456789");
	struct code_space *space = code_space_new(&form, &keys.list[0]);
	static char codes[1000000 * 9], seen[1000000];
	unsigned as_they_are = 0;

	(void)state;
	code_space_write(space, &form, 0, 1000000, codes);
	for (int64_t i = 0; i < 1000000; i++) {
		const char *code = codes + i * 9;
		char digits[] = { code[1], code[3], code[4], code[6], code[7], code[8], 0 };
		int at = atoi(digits);

		assert_true(code[0] == 'A' && code[2] == '-' && code[5] == '-');
		assert_int_equal(seen[at]++, 0);
		assert_int_equal(position_of(space, code, 9), i);
		as_they_are += at == i;
	}
	assert_in_range(as_they_are, 0, 10);
	code_space_free(space);
}

/* What codes look like never changes, or those that were handed out would be worth nothing. */
static void test_codes_stay_the_same(void **state)
{
	struct code_keys keys = keys_of(KEY_1);
	struct code_form form = form_of("#####-####-####", CODE_ALPHABET);
	struct code_space *space = code_space_new(&form, &keys.list[0]);
	char codes[3 * 15 + 1] = { 0 };

	(void)state;
	code_space_write(space, &form, 0, 2, codes);
	code_space_write(space, &form, (INT64_C(1) << 62) - 1, 1, codes + 30);
	assert_string_equal(codes, "FW663-V6VR-AT99"
				   "KLCHR-LBWN-A8ES"
				   "VKNQV-WPBM-6F8R");
	assert_int_equal(position_of(space, codes + 30, 15), (INT64_C(1) << 62) - 1);
	code_space_free(space);
}

static struct code_book *book_of(const struct code_form *form, const struct code_keys *keys)
{
	struct code_book *book = code_book_new();

	code_book_add_space(book, 7, code_space_new(form, &keys->list[0]));
	code_book_add_space(book, 3, code_space_new(form, &keys->list[1]));
	code_book_add_set(book, 7, &(struct code_set){ 71, 1002, 500, 10 });
	code_book_add_set(book, 7, &(struct code_set){ 70, 1001, 1000, 10 });
	code_book_add_set(book, 3, &(struct code_set){ 30, 1003, 1000, 5 });
	return book;
}

static void test_book(void **state)
{
	struct code_keys keys = keys_of(KEY_1 KEY_2);
	struct code_form form = form_of("NOON-####-####", CODE_ALPHABET);
	struct code_book *book = book_of(&form, &keys);
	struct code_found found;
	char codes[12 * 14];

	(void)state;
	code_space_write(code_book_space(book, 7), &form, 999, 12, codes);
	for (size_t i = 0; i < 12; i++) {
		int failed = code_book_find(book, codes + 14 * i, 14, &found);

		assert_int_equal(failed, i >= 1 && i <= 10 ? 0 : -1);
		if (failed)
			continue;
		assert_int_equal(found.set->id, 70);
		assert_int_equal(found.set->coupon, 1001);
		assert_int_equal(found.serial, i - 1);
	}
	code_space_write(code_book_space(book, 7), &form, 509, 1, codes);
	assert_int_equal(code_book_find(book, codes, 14, &found), 0);
	assert_int_equal(found.set->id, 71);
	code_space_write(code_book_space(book, 3), &form, 1004, 1, codes);
	assert_int_equal(code_book_find(book, codes, 14, &found), 0);
	assert_true(found.set->id == 30 && found.set->coupon == 1003);
	assert_int_equal(code_book_find(book, "NOON", 4, &found), -1);
	assert_null(code_book_space(book, 1));
	code_book_free(book);
}

/* More than are decided together, some of another form: each is what it is alone. */
static void test_many_at_once(void **state)
{
	enum { TEXTS = 150 };
	struct code_keys keys = keys_of(KEY_1 KEY_2);
	struct code_form form = form_of("NOON-####-####", CODE_ALPHABET);
	struct code_book *book = book_of(&form, &keys);
	struct code_found found[TEXTS], alone;
	struct code_text texts[TEXTS];
	static char codes[TEXTS * 14];
	int found_n = 0, short_n = 0;

	(void)state;
	code_space_write(code_book_space(book, 7), &form, 940, TEXTS, codes);
	for (size_t i = 0; i < TEXTS; i++)
		texts[i] = (struct code_text){ .text = codes + 14 * i, .len = i % 7 ? 14 : 13 };
	code_book_find_all(book, texts, TEXTS, found);
	for (size_t i = 0; i < TEXTS; i++) {
		code_book_find(book, texts[i].text, texts[i].len, &alone);
		assert_ptr_equal(found[i].set, alone.set);
		assert_int_equal(found[i].serial, alone.serial);
		found_n += found[i].set != NULL;
		short_n += texts[i].len == 13;
	}
	assert_true(found_n > 0 && found_n < TEXTS - short_n);
	code_book_free(book);
}

static void test_forged_codes_are_none(void **state)
{
	struct code_keys keys = keys_of(KEY_1 KEY_2);
	struct code_form form = form_of("#####-####-####", CODE_ALPHABET);
	struct code_book *book = code_book_new();
	uint64_t random = 1;

	(void)state;
	code_book_add_space(book, 1, code_space_new(&form, &keys.list[0]));
	code_book_add_set(book, 1, &(struct code_set){ 1, 1, 12345, 1000000 });
	for (int i = 0; i < 1000000; i++) {
		struct code_found found;
		char text[13];

		for (size_t k = 0; k < sizeof(text); k++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			text[k] = CODE_ALPHABET[random >> 59];
		}
		assert_int_equal(code_book_find(book, text, sizeof(text), &found), -1);
	}
	code_book_free(book);
}

static void test_reads_keys(void **state)
{
	struct code_keys keys = keys_of("# a comment\r\n\n" KEY_2 " \t" KEY_1 "  # another");
	char one[CODE_FINGERPRINT_SIZE], two[CODE_FINGERPRINT_SIZE];

	(void)state;
	assert_int_equal(keys.n, 2);
	assert_int_equal(code_keys_newest(&keys)->version, 2);
	assert_int_equal(code_keys_find(&keys, 1)->bytes[31], 0x1f);
	assert_int_equal(code_keys_find(&keys, 2)->bytes[0], 0x10);
	assert_null(code_keys_find(&keys, 3));
	code_key_fingerprint(code_keys_find(&keys, 1), one);
	code_key_fingerprint(code_keys_find(&keys, 2), two);
	assert_int_equal(strlen(one), 32);
	assert_string_not_equal(one, two);
	code_keys_wipe(&keys);
	assert_int_equal(keys.n, 0);
}

static void test_refuses_keys(void **state)
{
	static const char *const wrong[][2] = {
		{ "", "there is no key" },
		{ "# none\n", "there is no key" },
		{ "\n0 00\n", "line 2: it is not a key: allowed is VERSION HEX" },
		{ "1\n", "line 1" },
		{ "1 0001\n", "line 1" },
		{ "32768" KEY_1, "line 1" },
		{ "-" KEY_1, "line 1" },
		{ "x" KEY_1, "line 1" },
		{ KEY_1 KEY_1, "line 2: its version is that of a line before" },
		{ KEY_1 "1" KEY_1, "line 2: its key is that of a line before" },
		{ "1 g00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "line 1" },
		{ "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0", "line 1" },
	};
	struct code_keys keys;
	char why[CODE_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(code_keys_parse(&keys, wrong[i][0], strlen(wrong[i][0]), why), -1);
		assert_null(strstr(why, "0001"));
		if (!strstr(why, wrong[i][1]))
			fail_msg("\"%s\" does not say \"%s\"", why, wrong[i][1]);
	}
}

static void file_write(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void test_file_of_keys(void **state)
{
	char path[] = "/tmp/couponmq-keys-XXXXXX", why[CODE_WHY_SIZE];
	static const mode_t refused[] = { 0644, 0604, 0602, 0660, 0620, 0601 };
	struct code_keys keys;

	(void)state;
	close(mkstemp(path));
	file_write(path, KEY_1, 0600);
	assert_int_equal(code_key_file_read(&keys, path, why), 0);
	file_write(path, KEY_1, 0440);
	assert_int_equal(code_key_file_read(&keys, path, why), 0);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		file_write(path, KEY_1, refused[i]);
		assert_int_equal(code_key_file_read(&keys, path, why), -1);
		assert_non_null(strstr(why, "others may "));
	}
	file_write(path, "1 2\n", 0600);
	assert_int_equal(code_key_file_read(&keys, path, why), -1);
	assert_non_null(strstr(why, path));
	unlink(path);
	assert_int_equal(code_key_file_read(&keys, path, why), -1);
	assert_non_null(strstr(why, "No such file"));
	assert_int_equal(code_key_file_read(&keys, "/tmp", why), -1);
	assert_non_null(strstr(why, "it is a folder"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_is_a_bijection),
		cmocka_unit_test(test_codes_stay_the_same),
		cmocka_unit_test(test_book),
		cmocka_unit_test(test_many_at_once),
		cmocka_unit_test(test_forged_codes_are_none),
		cmocka_unit_test(test_reads_keys),
		cmocka_unit_test(test_refuses_keys),
		cmocka_unit_test(test_file_of_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
