/*
 * Texts as codes. The first byte chooses what the rest is: a text, the position and the spelling of
 * a code, a pattern, keys, or a code of others. A made-up text is no code; the code of a position
 * is read as that position in any spelling, and is none with one symbol changed.
 */
#include "tests/fuzz/fuzz.h"

#include "codes/book.h"

#include <ctype.h>
#include <stdlib.h>

#define SETS_FIRST 1000
#define SETS_COUNT 1000

static const char *const forms[][2] = {
	{ "#####-####-####", CODE_ALPHABET },
	{ "NOON-####-####-##", CODE_ALPHABET },
	{ "NO-##-####-####-####", "abcdefghijklmnopqrstuvwxyz0123456789ABC" },
	{ "###-###-###-###-###-###", "0123456789" },
};

#define FORMS_N (sizeof(forms) / sizeof(forms[0]))

static struct code_form parsed[FORMS_N];

static struct code_book *book_make(void)
{
	struct code_book *book = code_book_new();
	struct code_key key = { .version = 1, .bytes = { 1, 2, 3 } };
	char why[CODE_WHY_SIZE];

	for (size_t i = 0; i < FORMS_N; i++) {
		const struct code_set set = {
			.id = (int64_t)i + 1, .coupon = 1, .first = SETS_FIRST, .count = SETS_COUNT
		};

		check(code_form_parse(&parsed[i], forms[i][0], forms[i][1], why) == 0);
		code_book_add_space(book, (int64_t)i, code_space_new(&parsed[i], &key));
		code_book_add_set(book, (int64_t)i, &set);
	}
	return book;
}

/* Nobody who does not have the key makes up a code: at most 1 text in 10^12 is one. */
static void text_check(struct code_book *book, const char *text, size_t len)
{
	struct code_found found;

	check(code_book_find(book, text, len, &found) != 0);
}

/* A code with dashes, spaces and letters of the other case at random places. */
static void code_check(struct code_book *book, const uint8_t *data, size_t size)
{
	struct bytes bytes = { data, size };
	size_t which = bytes_u8(&bytes) % FORMS_N, n = 0;
	int64_t serial = (bytes_u8(&bytes) << 8 | bytes_u8(&bytes)) % SETS_COUNT;
	const struct code_form *form = &parsed[which];
	char code[CODE_WIDTH_MAX], text[3 * CODE_WIDTH_MAX];
	struct code_found found;

	code_space_write(code_book_space(book, (int64_t)which), form, SETS_FIRST + serial, 1, code);
	for (size_t i = 0; i < form->width; i++) {
		uint8_t change = bytes_u8(&bytes);

		if (change & 1)
			text[n++] = change & 2 ? ' ' : '-';
		text[n++] = (char)(change & 4 && form->folds ? tolower(code[i]) : code[i]);
	}
	check(code_book_find(book, text, n, &found) == 0);
	check(found.set->id == (int64_t)which + 1 && found.serial == serial);
	for (size_t i = n; i-- > 0;) /* one symbol changed: another position */
		if (form->digits[(unsigned char)text[i]] >= 0) {
			text[i] = form->alphabet[form->digits[(unsigned char)text[i]] == 0];
			break;
		}
	text_check(book, text, n);
}

static void pattern_check(const char *text)
{
	char why[CODE_WHY_SIZE];
	struct code_form form, again;

	if (code_form_parse(&form, text, CODE_ALPHABET, why)) {
		check(strstr(why, "allowed") && strlen(why) < CODE_WHY_SIZE - 1);
		return;
	}
	check(form.size >= FF1_STRINGS_LEAST && code_chance_codes_max(&form) >= 0);
	check(code_form_parse(&again, form.plain, form.alphabet, why) == 0);
	check(code_forms_same(&form, &again) && code_forms_overlap(&form, &again));
}

static void keys_check(const char *text, size_t len)
{
	char why[CODE_WHY_SIZE];
	struct code_keys keys;

	if (code_keys_parse(&keys, text, len, why)) {
		check(strlen(why) < CODE_WHY_SIZE - 1);
		return;
	}
	check(keys.n >= 1 && keys.n <= CODE_KEYS_MAX);
	check(code_keys_newest(&keys)->version <= CODE_KEY_VERSION_MAX);
}

static void others_check(const char *text, size_t len)
{
	char spelled[CODE_OTHERS_SIZE], again[CODE_OTHERS_SIZE];

	if (code_text_spell(text, len, spelled))
		return;
	check(strlen(spelled) >= 1 && strlen(spelled) <= CODE_OTHERS_MAX);
	check(code_text_spell(spelled, strlen(spelled), again) == 0);
	check(strcmp(spelled, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct code_book *book;
	size_t len = size ? size - 1 : 0;
	char *text;

	if (!book)
		book = book_make();
	if (size == 0)
		return 0;
	text = malloc(len + 1);
	check(text != NULL);
	memcpy(text, data + 1, len);
	text[len] = '\0';
	switch (data[0] % 5) {
	case 0:
		text_check(book, text, len);
		break;
	case 1:
		code_check(book, data + 1, len);
		break;
	case 2:
		pattern_check(text);
		break;
	case 3:
		keys_check(text, len);
		break;
	case 4:
		others_check(text, len);
		break;
	}
	free(text);
	return 0;
}
