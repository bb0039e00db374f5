/*
 * Exchange codes: their texts, the keys and the spaces of generated codes, and the book of all
 * spaces and the sets in them, as far as a program knows them, which tells which code a text is. In
 * memory; one thread.
 */
#pragma once

#include "codes/form.h"

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The one spelling of a code that others made, and of a word for all, is its letters in upper case,
 * without spaces and dashes.
 */
#define CODE_OTHERS_MAX 64
#define CODE_OTHERS_SIZE (CODE_OTHERS_MAX + 1)
#define CODE_OTHERS_ALLOWED "1 to 64 bytes of printable ASCII, not counting spaces and dashes"

/* A text as a user writes it. */
struct code_text {
	const char *text;
	size_t len;
};

/* Whether the code can be shown as it was given: pasted spaces and dashes cannot be seen. */
int code_text_is_plain(const char *text, size_t len);

/* Writes the spelling of exactly `len` bytes with a NUL. 0, or -1 unless it is allowed. */
int code_text_spell(const char *text, size_t len, char out[CODE_OTHERS_SIZE]);

/*
 * Keys of generated codes: AES-256, each with a version. The text of a key file has a line
 * `VERSION HEX` for each; empty lines and lines that begin with # are ignored.
 */

#define CODE_KEY_BYTES 32
#define CODE_KEY_VERSION_MAX 32767
#define CODE_KEYS_MAX 64
#define CODE_FINGERPRINT_SIZE 33

struct code_key {
	int version;
	uint8_t bytes[CODE_KEY_BYTES];
};

struct code_keys {
	struct code_key list[CODE_KEYS_MAX];
	size_t n;
};

/*
 * The text has a NUL behind its `len` bytes. 0, or -1 with a sentence that names the line and what
 * is allowed, and never a key. A version may be there once, and so may a key.
 */
int code_keys_parse(struct code_keys *keys, const char *text, size_t len, char why[CODE_WHY_SIZE]);
void code_keys_wipe(struct code_keys *keys);

const struct code_key *code_keys_find(const struct code_keys *keys, int version); /* or NULL */
const struct code_key *code_keys_newest(const struct code_keys *keys);            /* NULL: none */

/* Tells keys from each other, and nothing about them. Returns `out`. */
char *code_key_fingerprint(const struct code_key *key, char out[CODE_FINGERPRINT_SIZE]);

#define CODE_KEY_FILE_BYTES_MAX 65536

/* Returns what key_file_read() does: 0, -1 or KEY_FILE_LATER. */
int code_key_file_read(struct code_keys *keys, const char *path, char why[CODE_WHY_SIZE]);

/*
 * A space of codes: a form under a key. Its positions are the numbers from 0 to size - 1, and each
 * position has one code, by a permutation that only the key tells. PostgreSQL gives ranges of
 * positions to sets of codes.
 */
struct code_space;

#define CODE_LANES 64 /* texts and codes that are worked on together */

/* Both are copied. */
struct code_space *code_space_new(const struct code_form *form, const struct code_key *key);
void code_space_free(struct code_space *space);

/*
 * Writes the codes of `n` positions from `first` on, each of `width` characters of `as`, without
 * anything between or after them. `as` is the space's form, perhaps with other dashes. All
 * positions must be below the form's size. Many at once are faster. Not from two threads at once.
 */
void code_space_write(struct code_space *space, const struct code_form *as, int64_t first, size_t n,
		      char *out);

/*
 * The positions of `n` texts, at most CODE_LANES. -1: the text is not of this form; INT64_MAX also
 * for what is beyond, where no set is. Takes the same work for every text of the form. Many at once
 * are faster. Not from two threads at once.
 */
void code_space_read(struct code_space *space, const struct code_text *texts, size_t n,
		     int64_t *positions);

struct code_set {
	int64_t id;
	int64_t coupon;
	int64_t first; /* position of its first code */
	int64_t count;
};

struct code_found {
	const struct code_set *set; /* until the book changes; NULL: no set has the code */
	int64_t serial;             /* the number of the code in its set: 0… */
};

struct code_book;

struct code_book *code_book_new(void);
void code_book_free(struct code_book *book);

/* A space with an id that the book does not have. It belongs to the book from then on. */
void code_book_add_space(struct code_book *book, int64_t id, struct code_space *space);
struct code_space *code_book_space(const struct code_book *book, int64_t id); /* NULL: none */

/* Adds a set to the space with this id, by ascending positions; the sets do not overlap. */
void code_book_add_set(struct code_book *book, int64_t space, const struct code_set *set);

enum code_taken {
	CODE_TAKEN,
	CODE_KEY_MISSING, /* the keys lack that of its space */
	CODE_KEY_OTHER,   /* or have another one with its version */
	CODE_FORM_WRONG   /* this version cannot read its form */
};

/*
 * Adds the generated set of a row of sql_query_code_catalogue, in their order, and its space with
 * the first of its sets. If it cannot, `why` is a sentence.
 */
enum code_taken code_book_take(struct code_book *book, const struct code_keys *keys,
			       const PGresult *rows, int row, char why[CODE_WHY_SIZE]);

/*
 * Which codes `n` texts are; spaces and dashes are ignored. Each space whose form a text has is
 * tried, in any case: the time does not tell how near a wrong text is. Of two codes with one text,
 * which cannot be excluded but hardly happens (form.h), it is always that of the space that was
 * added first. Many at once are faster.
 */
void code_book_find_all(struct code_book *book, const struct code_text *texts, size_t n,
			struct code_found *found);
/* Which code one text is. 0, or -1: it is none. */
int code_book_find(struct code_book *book, const char *text, size_t len, struct code_found *found);
