#include "codes/book.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWEAK_SIZE (32 + CODE_TEXT_MAX + CODE_ALPHABET_MAX)

int code_text_spell(const char *text, size_t len, char out[CODE_OTHERS_SIZE])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == ' ' || c == '-')
			continue;
		if (c < '!' || c > '~' || n == CODE_OTHERS_MAX)
			return -1;
		out[n++] = (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
	}
	out[n] = '\0';
	return n > 0 ? 0 : -1;
}

struct code_space {
	struct code_form form;
	struct ff1 *ff1;
};

/*
 * Two spaces with one key have different permutations: the tweak has the form. It never changes, or
 * the codes that exist would be others.
 */
static size_t tweak_write(const struct code_form *form, char tweak[TWEAK_SIZE])
{
	return (size_t)snprintf(tweak, TWEAK_SIZE, "couponmq codes 1 %s %s", form->plain,
				form->alphabet);
}

struct code_space *code_space_new(const struct code_form *form, const struct code_key *key)
{
	struct code_space *space = calloc(1, sizeof(*space));
	char tweak[TWEAK_SIZE];
	size_t len = tweak_write(form, tweak);

	check(space != NULL && len < TWEAK_SIZE);
	space->form = *form;
	space->ff1 = ff1_new(key->bytes, CODE_KEY_BYTES, form->radix, form->free_n, tweak, len);
	return space;
}

void code_space_free(struct code_space *space)
{
	if (!space)
		return;
	ff1_free(space->ff1);
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
		ff1_encrypt(space->ff1, strings, part_n);
		for (size_t i = 0; i < part_n; i++, out += as->width)
			code_form_write(as, &strings[i], out);
	}
}

static int64_t position_of(const struct code_form *form, const struct ff1_string *string)
{
	unsigned __int128 position = (unsigned __int128)string->first * form->last_n + string->last;

	return position > INT64_MAX ? INT64_MAX : (int64_t)position;
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
	ff1_decrypt(space->ff1, strings, found_n);
	for (size_t i = 0; i < found_n; i++)
		positions[places[i]] = position_of(&space->form, &strings[i]);
}

struct shelf {
	int64_t id;
	struct code_space *space;
	struct code_set *sets; /* ascending by their first position */
	size_t sets_n, room;
};

struct code_book {
	struct shelf *shelves;
	size_t n;
};

struct code_book *code_book_new(void)
{
	struct code_book *book = calloc(1, sizeof(*book));

	check(book != NULL);
	return book;
}

void code_book_free(struct code_book *book)
{
	for (size_t i = 0; book && i < book->n; i++) {
		code_space_free(book->shelves[i].space);
		free(book->shelves[i].sets);
	}
	if (book)
		free(book->shelves);
	free(book);
}

static struct shelf *shelf_find(const struct code_book *book, int64_t id)
{
	for (size_t i = 0; i < book->n; i++)
		if (book->shelves[i].id == id)
			return &book->shelves[i];
	return NULL;
}

void code_book_add_space(struct code_book *book, int64_t id, struct code_space *space)
{
	check(!shelf_find(book, id));
	book->shelves = reallocarray(book->shelves, book->n + 1, sizeof(*book->shelves));
	check(book->shelves != NULL);
	book->shelves[book->n++] = (struct shelf){ .id = id, .space = space };
}

struct code_space *code_book_space(const struct code_book *book, int64_t id)
{
	const struct shelf *shelf = shelf_find(book, id);

	return shelf ? shelf->space : NULL;
}

void code_book_add_set(struct code_book *book, int64_t space, const struct code_set *set)
{
	struct shelf *shelf = shelf_find(book, space);

	check(shelf != NULL);
	if (shelf->sets_n == shelf->room) {
		shelf->room = 2 * shelf->room + 16;
		shelf->sets = reallocarray(shelf->sets, shelf->room, sizeof(*shelf->sets));
		check(shelf->sets != NULL);
	}
	check(shelf->sets_n == 0 || shelf->sets[shelf->sets_n - 1].first < set->first);
	shelf->sets[shelf->sets_n++] = *set;
}

/* 0: the position is one of the set. */
static int position_compare(const void *a, const void *b)
{
	const int64_t *position = a;
	const struct code_set *set = b;

	return *position < set->first ? -1 : *position - set->first >= set->count;
}

/* Sets `found` if a set has the position and no space before this one has the code. */
static void position_find(const struct shelf *shelf, int64_t position, struct code_found *found)
{
	if (found->set || shelf->sets_n == 0)
		return;
	found->set = bsearch(&position, shelf->sets, shelf->sets_n, sizeof(*shelf->sets),
			     position_compare);
	found->space = shelf->space;
	found->serial = found->set ? position - found->set->first : 0;
}

void code_book_find_all(struct code_book *book, const struct code_text *texts, size_t n,
			struct code_found *found)
{
	int64_t positions[CODE_LANES];
	size_t part_n;

	memset(found, 0, n * sizeof(*found));
	for (; n > 0; n -= part_n, texts += part_n, found += part_n) {
		part_n = n < CODE_LANES ? n : CODE_LANES;
		for (size_t place = 0; place < book->n; place++) {
			const struct shelf *shelf = &book->shelves[place];

			code_space_read(shelf->space, texts, part_n, positions);
			for (size_t i = 0; i < part_n; i++)
				position_find(shelf, positions[i], &found[i]);
		}
	}
}

int code_book_find(struct code_book *book, const char *text, size_t len, struct code_found *found)
{
	const struct code_text one = { .text = text, .len = len };

	code_book_find_all(book, &one, 1, found);
	return found->set ? 0 : -1;
}
