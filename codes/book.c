#include "codes/book.h"

#include "common/array.h"
#include "common/check.h"
#include "common/postgres/postgres_session.h"
#include "common/program/key_file.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CODE_WHY_SIZE == KEY_FILE_WHY_SIZE, "one sentence fits the other");

#define TWEAK_SIZE (32 + CODE_TEXT_MAX + CODE_ALPHABET_MAX)
#define BLANKS " \t\r"
#define ALLOWED "allowed is VERSION HEX, with a version from 1 to 32767 and 64 hexadecimal digits"

int code_text_is_plain(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] < ' ' || text[i] > '~')
			return 0;
	return 1;
}

int code_text_spell(const char *text, size_t len, char out[CODE_OTHERS_SIZE])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		size_t ignored = code_ignored_length(text + i, len - i);
		char c = text[i];

		if (ignored > 0) {
			i += ignored - 1;
			continue;
		}
		if (c < '!' || c > '~' || n == CODE_OTHERS_MAX)
			return -1;
		out[n++] = (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
	}
	out[n] = '\0';
	return n > 0 ? 0 : -1;
}

/* Adds the key of the line. NULL, or what is wrong. */
static const char *line_add(struct code_keys *keys, const char *p, const char *end)
{
	static const char malformed[] = "it is not a key: " ALLOWED;
	struct code_key *key = &keys->list[keys->n];
	char *digits_end = NULL;
	long version = isdigit((unsigned char)*p) ? strtol(p, &digits_end, 10) : 0;
	size_t bytes_n;

	if (keys->n == CODE_KEYS_MAX)
		return "it is one too many: allowed are 64 keys";
	if (version < 1 || version > CODE_KEY_VERSION_MAX || strspn(digits_end, BLANKS) == 0)
		return malformed;
	key->version = (int)version;
	p = digits_end + strspn(digits_end, BLANKS);
	if (sodium_hex2bin(key->bytes, CODE_KEY_BYTES, p, (size_t)(end - p), NULL, &bytes_n, &p) ||
	    bytes_n != CODE_KEY_BYTES || p + strspn(p, BLANKS) != end)
		return malformed;
	for (size_t i = 0; i < keys->n; i++) {
		if (keys->list[i].version == key->version)
			return "its version is that of a line before: allowed is each once";
		if (CRYPTO_memcmp(keys->list[i].bytes, key->bytes, CODE_KEY_BYTES) == 0)
			return "its key is that of a line before: allowed is each once";
	}
	keys->n++;
	return NULL;
}

int code_keys_parse(struct code_keys *keys, const char *text, size_t len, char why[CODE_WHY_SIZE])
{
	const char *end = text + len, *wrong;
	int line = 1;

	keys->n = 0;
	for (const char *p = text, *next; p < end; p = next + 1, line++) {
		next = memchr(p, '\n', (size_t)(end - p));
		next = next ? next : end;
		p += strspn(p, BLANKS);
		if (p == next || *p == '#')
			continue;
		wrong = line_add(keys, p, next);
		if (wrong) {
			snprintf(why, CODE_WHY_SIZE, "line %d: %s", line, wrong);
			code_keys_wipe(keys);
			return -1;
		}
	}
	if (keys->n > 0)
		return 0;
	snprintf(why, CODE_WHY_SIZE, "there is no key: " ALLOWED);
	return -1;
}

void code_keys_wipe(struct code_keys *keys)
{
	OPENSSL_cleanse(keys, sizeof(*keys));
}

const struct code_key *code_keys_find(const struct code_keys *keys, int version)
{
	for (size_t i = 0; i < keys->n; i++)
		if (keys->list[i].version == version)
			return &keys->list[i];
	return NULL;
}

const struct code_key *code_keys_newest(const struct code_keys *keys)
{
	const struct code_key *newest = NULL;

	for (size_t i = 0; i < keys->n; i++)
		if (!newest || keys->list[i].version > newest->version)
			newest = &keys->list[i];
	return newest;
}

char *code_key_fingerprint(const struct code_key *key, char out[CODE_FINGERPRINT_SIZE])
{
	static const unsigned char what[] = "couponmq fingerprint of a key of codes";
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned len;

	check(HMAC(EVP_sha256(), key->bytes, CODE_KEY_BYTES, what, sizeof(what) - 1, mac, &len) !=
	      NULL);
	return sodium_bin2hex(out, CODE_FINGERPRINT_SIZE, mac, (CODE_FINGERPRINT_SIZE - 1) / 2);
}

int code_key_file_read(struct code_keys *keys, const char *path, char why[CODE_WHY_SIZE])
{
	char line[CODE_WHY_SIZE];
	struct key_file file;
	int failed = key_file_read(&file, path, CODE_KEY_FILE_BYTES_MAX, why);

	if (failed)
		return failed;
	if (!file.is_secret)
		failed = key_file_why(path, KEY_FILE_OTHERS, why);
	else if ((failed = code_keys_parse(keys, file.text, file.len, line)) != 0)
		snprintf(why, CODE_WHY_SIZE, "the file of keys \"%.300s\": %.150s", path, line);
	key_file_wipe(&file);
	return failed;
}

struct code_space {
	int64_t id; /* in its book */
	struct code_form form;
	struct ff1 *ff1;
	struct code_set *sets; /* ascending by their first position */
	size_t sets_n, room;
};

/*
 * Two spaces with one key have different permutations: the tweak has the form. It never changes, or
 * the codes that exist would be others.
 */
struct code_space *code_space_new(const struct code_form *form, const struct code_key *key)
{
	struct code_space *space = calloc(1, sizeof(*space));
	char tweak[TWEAK_SIZE];
	int len = snprintf(tweak, TWEAK_SIZE, "couponmq codes 1 %s %s", form->plain,
			   form->alphabet);

	check(space != NULL && len < TWEAK_SIZE);
	space->form = *form;
	space->ff1 = ff1_new(key->bytes, CODE_KEY_BYTES, form->radix, form->free_n, tweak,
			     (size_t)len);
	return space;
}

void code_space_free(struct code_space *space)
{
	ff1_free(space->ff1);
	free(space->sets);
	free(space);
}

void code_space_write(struct code_space *space, const struct code_form *as, int64_t first, size_t n,
		      char *out)
{
	struct ff1_string strings[CODE_LANES];
	size_t part_n;

	check(code_forms_same(as, &space->form));
	check(first >= 0 && (unsigned __int128)first + n <= as->size);
	for (; n > 0; n -= part_n, first += (int64_t)part_n) {
		part_n = n < CODE_LANES ? n : CODE_LANES;
		for (size_t i = 0; i < part_n; i++) {
			uint64_t position = (uint64_t)first + i;

			strings[i] = (struct ff1_string){ .first = position / as->last_n,
							  .last = position % as->last_n };
		}
		ff1_permute(space->ff1, FF1_ENCRYPT, strings, part_n);
		for (size_t i = 0; i < part_n; i++, out += as->width)
			code_form_write(as, &strings[i], out);
	}
}

void code_space_read(struct code_space *space, const struct code_text *texts, size_t n,
		     int64_t *positions)
{
	struct ff1_string strings[CODE_LANES];
	size_t places[CODE_LANES], found_n = 0;

	check(n <= CODE_LANES);
	for (size_t i = 0; i < n; i++) {
		positions[i] = -1;
		if (code_form_read(&space->form, texts[i].text, texts[i].len, &strings[found_n]))
			continue;
		places[found_n++] = i;
	}
	ff1_permute(space->ff1, FF1_DECRYPT, strings, found_n);
	for (size_t i = 0; i < found_n; i++) {
		unsigned __int128 position =
			(unsigned __int128)strings[i].first * space->form.last_n + strings[i].last;

		positions[places[i]] = position > INT64_MAX ? INT64_MAX : (int64_t)position;
	}
}

struct code_book {
	struct code_space **spaces;
	size_t n, room;
};

struct code_book *code_book_new(void)
{
	return checked(calloc(1, sizeof(struct code_book)));
}

void code_book_free(struct code_book *book)
{
	for (size_t i = 0; i < book->n; i++)
		code_space_free(book->spaces[i]);
	free(book->spaces);
	free(book);
}

void code_book_add_space(struct code_book *book, int64_t id, struct code_space *space)
{
	check(!code_book_space(book, id));
	book->spaces = array_room(book->spaces, book->n, &book->room, sizeof(*book->spaces));
	book->spaces[book->n++] = space;
	space->id = id;
}

struct code_space *code_book_space(const struct code_book *book, int64_t id)
{
	for (size_t i = 0; i < book->n; i++)
		if (book->spaces[i]->id == id)
			return book->spaces[i];
	return NULL;
}

void code_book_add_set(struct code_book *book, int64_t id, const struct code_set *set)
{
	struct code_space *space = code_book_space(book, id);

	check(space != NULL);
	space->sets = array_room(space->sets, space->sets_n, &space->room, sizeof(*set));
	check(space->sets_n == 0 || space->sets[space->sets_n - 1].first < set->first);
	space->sets[space->sets_n++] = *set;
}

enum code_taken code_book_take(struct code_book *book, const struct code_keys *keys,
			       const PGresult *rows, int row, char why[CODE_WHY_SIZE])
{
	int64_t space = column_number(rows, row, "space_id");
	int version = (int)column_number(rows, row, "key_version");
	const struct code_key *key = code_keys_find(keys, version);
	const struct code_set set = { .id = column_number(rows, row, "id"),
				      .coupon = column_number(rows, row, "coupon_id"),
				      .first = column_number(rows, row, "first_position"),
				      .count = column_number(rows, row, "code_num") };
	char fingerprint[CODE_FINGERPRINT_SIZE];
	struct code_form form;

	if (!code_book_space(book, space)) {
		if (!key || strcmp(code_key_fingerprint(key, fingerprint),
				   column_text(rows, row, "fingerprint")) != 0) {
			snprintf(
				why, CODE_WHY_SIZE,
				key ? "COUPON_CODE_KEYS names a file with another key as version %d"
				    : "COUPON_CODE_KEYS names no file with the key of version %d",
				version);
			return key ? CODE_KEY_OTHER : CODE_KEY_MISSING;
		}
		if (code_form_parse(&form, column_text(rows, row, "form"),
				    column_text(rows, row, "alphabet"), why))
			return CODE_FORM_WRONG;
		code_book_add_space(book, space, code_space_new(&form, key));
	}
	code_book_add_set(book, space, &set);
	return CODE_TAKEN;
}

/* 0: the position is one of the set. */
static int position_compare(const void *a, const void *b)
{
	const int64_t *position = a;
	const struct code_set *set = b;

	return *position < set->first ? -1 : *position - set->first >= set->count;
}

void code_book_find_all(struct code_book *book, const struct code_text *texts, size_t n,
			struct code_found *found)
{
	int64_t positions[CODE_LANES];
	size_t part_n;

	memset(found, 0, n * sizeof(*found));
	for (; n > 0; n -= part_n, texts += part_n, found += part_n) {
		part_n = n < CODE_LANES ? n : CODE_LANES;
		for (size_t k = 0; k < book->n; k++) {
			const struct code_space *space = book->spaces[k];

			code_space_read(book->spaces[k], texts, part_n, positions);
			for (size_t i = 0; i < part_n; i++) {
				/* A space before this one may have the code. */
				if (found[i].set || space->sets_n == 0)
					continue;
				found[i].set = bsearch(&positions[i], space->sets, space->sets_n,
						       sizeof(*space->sets), position_compare);
				if (found[i].set)
					found[i].serial = positions[i] - found[i].set->first;
			}
		}
	}
}

int code_book_find(struct code_book *book, const char *text, size_t len, struct code_found *found)
{
	const struct code_text one = { .text = text, .len = len };

	code_book_find_all(book, &one, 1, found);
	return found->set ? 0 : -1;
}
