/*
 * A space of codes: a form under a key. Its positions are the numbers from 0 to size - 1, and each
 * position has one code, by a permutation that only the key tells. PostgreSQL gives ranges of
 * positions to sets of codes.
 */
#ifndef CODES_SPACE_H
#define CODES_SPACE_H

#include "codes/form.h"
#include "codes/key.h"
#include "codes/text.h"

struct code_space;

/* Both are copied. */
struct code_space *code_space_new(const struct code_form *form, const struct code_key *key);
void code_space_free(struct code_space *space); /* NULL is allowed */

/*
 * Writes the codes of `n` positions from `first` on, each of `width` characters of `as`, without
 * anything between or after them. `as` is the space's form, perhaps with other dashes. All
 * positions must be below the form's size. Many at once are faster. Not from two threads at once.
 */
void code_space_write(struct code_space *space, const struct code_form *as, int64_t first, size_t n,
		      char *out);

/*
 * The positions of `n` texts. -1: the text is not of this form; INT64_MAX also for what is beyond,
 * where no set is. Takes the same work for every text of the form. Many at once are faster. Not
 * from two threads at once.
 */
void code_space_read(struct code_space *space, const struct code_text *texts, size_t n,
		     int64_t *positions);

const struct code_form *code_space_form(const struct code_space *space);

#endif
