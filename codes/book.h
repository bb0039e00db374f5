/*
 * All spaces of codes and the sets in them, as far as a program knows them: tells which code a text
 * is. In memory; one thread.
 */
#ifndef CODES_BOOK_H
#define CODES_BOOK_H

#include "codes/space.h"

struct code_set {
	int64_t id;
	int64_t coupon;
	int64_t first; /* position of its first code */
	int64_t count;
};

struct code_found {
	const struct code_set *set; /* until the book changes; NULL: no set has the code */
	const struct code_space *space;
	int64_t serial; /* the number of the code in its set: 0… */
};

struct code_book;

struct code_book *code_book_new(void);
void code_book_free(struct code_book *book); /* NULL is allowed */

/* A space with an id that the book does not have. It belongs to the book from then on. */
void code_book_add_space(struct code_book *book, int64_t id, struct code_space *space);
struct code_space *code_book_space(const struct code_book *book, int64_t id); /* NULL: none */

/*
 * Adds a set to the space with this id, or changes the one with the same `first`. The sets of a
 * space do not overlap; ascending positions are faster.
 */
void code_book_add_set(struct code_book *book, int64_t space, const struct code_set *set);

/*
 * Which codes `n` texts are; spaces and dashes are ignored. Each space whose form a text has is
 * tried, in any case: the time does not tell how near a wrong text is. Of two codes with one text,
 * which cannot be excluded but hardly happens (chance.h), it is always that of the space that was
 * added first. Many at once are faster.
 */
void code_book_find_all(struct code_book *book, const struct code_text *texts, size_t n,
			struct code_found *found);
/* The same of one text. 0, or -1: it is no code. */
int code_book_find(struct code_book *book, const char *text, size_t len, struct code_found *found);

#endif
