#include "codes/book.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 64

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

/* How many sets begin at this position or before it. */
static size_t sets_until(const struct shelf *shelf, int64_t position)
{
	size_t low = 0, high = shelf->sets_n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (shelf->sets[middle].first <= position)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void code_book_add_set(struct code_book *book, int64_t space, const struct code_set *set)
{
	struct shelf *shelf = shelf_find(book, space);
	size_t at;

	check(shelf != NULL);
	at = sets_until(shelf, set->first);
	if (at > 0 && shelf->sets[at - 1].first == set->first) {
		shelf->sets[at - 1] = *set;
		return;
	}
	if (shelf->sets_n == shelf->room) {
		shelf->room = 2 * shelf->room + 16;
		shelf->sets = reallocarray(shelf->sets, shelf->room, sizeof(*shelf->sets));
		check(shelf->sets != NULL);
	}
	memmove(shelf->sets + at + 1, shelf->sets + at,
		(shelf->sets_n - at) * sizeof(*shelf->sets));
	shelf->sets[at] = *set;
	shelf->sets_n++;
}

/* Sets `found` if a set has the position and no space before this one has the code. */
static void position_find(const struct shelf *shelf, int64_t position, struct code_found *found)
{
	size_t n = sets_until(shelf, position);
	const struct code_set *set = n > 0 ? &shelf->sets[n - 1] : NULL;

	if (!set || position - set->first >= set->count || found->set)
		return;
	found->set = set;
	found->space = shelf->space;
	found->serial = position - set->first;
}

/* At most TEXTS_MAX texts. */
static void part_find(struct code_book *book, const struct code_text *texts, size_t n,
		      struct code_found *found)
{
	int64_t positions[TEXTS_MAX];

	memset(found, 0, n * sizeof(*found));
	for (size_t place = 0; place < book->n; place++) {
		const struct shelf *shelf = &book->shelves[place];

		code_space_read(shelf->space, texts, n, positions);
		for (size_t i = 0; i < n; i++)
			position_find(shelf, positions[i], &found[i]);
	}
}

void code_book_find_all(struct code_book *book, const struct code_text *texts, size_t n,
			struct code_found *found)
{
	for (size_t i = 0; i < n; i += TEXTS_MAX)
		part_find(book, texts + i, n - i < TEXTS_MAX ? n - i : TEXTS_MAX, found + i);
}

int code_book_find(struct code_book *book, const char *text, size_t len, struct code_found *found)
{
	const struct code_text one = { .text = text, .len = len };

	code_book_find_all(book, &one, 1, found);
	return found->set ? 0 : -1;
}
