/*
 * How likely a text that somebody made up is a code, and how many codes a form may therefore have.
 *
 * Nothing but its place tells a code from other texts of its form, so a guess hits with the chance
 * codes / texts. It must not exceed 1 in 10^9: who tries a thousand texts a second, day and night,
 * then finds one code in eleven days on average; with a million codes of the default form one in a
 * thousand years.
 */
#ifndef CODES_CHANCE_H
#define CODES_CHANCE_H

#include "codes/form.h"

#include <stdint.h>

#define CODE_CHANCE_ONE_IN 1000000000
#define CODE_TWICE_ONE_IN 1000       /* see below */
#define CODE_CODES_MAX 1000000000000 /* of one form */

/* The most codes that the form may have. */
int64_t code_chance_codes_max(const struct code_form *form);

/*
 * Whether `count` codes may be added to `own` codes of the form, where forms whose texts may be of
 * this form, too, have `others` codes. Counts are at most CODE_CODES_MAX. 0, or -1 with a sentence
 * that has the arithmetic.
 *
 * A text may be a code of two forms or keys by chance. The number of those to expect, (own + count)
 * * others / texts, must not exceed 1 / 1000.
 */
int code_chance_check(const struct code_form *form, int64_t own, int64_t others, int64_t count,
		      char why[CODE_WHY_SIZE]);

/* Writes "32^13 = 3.7e19 texts: a guess hits with 1 in 3.7e13" for so many codes; returns `out`. */
#define CODE_CHANCE_SIZE 160
char *code_chance_text(const struct code_form *form, int64_t codes, char out[CODE_CHANCE_SIZE]);

#endif
