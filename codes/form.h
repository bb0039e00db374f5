/*
 * The form of generated codes: a pattern such as NOON-####-####, in which each # stands for a
 * symbol of the alphabet, and everything else for itself. Dashes are for readers only.
 *
 * If all letters of the alphabet have one case, codes are written in it and read in either. In an
 * alphabet with letters of both cases they differ, and codes are read as they are written.
 */
#pragma once

#include "codes/ff1.h"

#include <stddef.h>
#include <stdint.h>

/* 32 symbols, without those that look alike: 0 and O, 1 and I. */
#define CODE_ALPHABET "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
#define CODE_LENGTH 13    /* symbols of a code, if nothing else is chosen */
#define CODE_TEXT_MAX 64  /* characters of a code without dashes */
#define CODE_WIDTH_MAX 96 /* and with them */
#define CODE_ALPHABET_MAX 62
#define CODE_WHY_SIZE 512

struct code_form {
	char pattern[CODE_WIDTH_MAX + 1];
	char plain[CODE_TEXT_MAX + 1];        /* the pattern without dashes */
	char alphabet[CODE_ALPHABET_MAX + 1]; /* sorted by ASCII */
	size_t width, length;                 /* of the pattern, and without dashes */
	unsigned radix, free_n;               /* symbols of the alphabet, and in a code */
	int folds;                            /* the case of a letter does not matter */
	int is_lower;                         /* then letters are written in lower case */
	unsigned __int128 size;               /* number of texts: radix^free_n */
	uint64_t last_n;                      /* radix^(digits of ff1_string.last) */
	signed char digits[256];              /* by byte: its place in the alphabet, or -1 */
};

/*
 * Forms that differ in their dashes alone are the same form, written otherwise. 0, or -1 with a
 * sentence that names what is wrong and what is allowed.
 */
int code_form_parse(struct code_form *form, const char *pattern, const char *alphabet,
		    char why[CODE_WHY_SIZE]);

/*
 * Writes the pattern of `length` symbols in groups of about four, after a prefix and a dash if
 * there is a prefix: #####-####-#### for 13. 0, or -1 when it would be too long.
 */
int code_pattern_make(const char *prefix, unsigned length, char out[CODE_WIDTH_MAX + 1]);

/* Writes `width` characters without a NUL. */
void code_form_write(const struct code_form *form, const struct ff1_string *string, char *out);

/*
 * How many bytes at the beginning of the text are a space or a dash, which codes are read without:
 * those of ASCII, with tabs and ends of lines, and those of Unicode in UTF-8, as they come in
 * pasted texts: no-break, zero-width and other spaces, marks of direction, hyphens, dashes and the
 * minus sign. 0: it is neither.
 */
size_t code_ignored_length(const char *text, size_t len);

/*
 * Reads a text; spaces and dashes are ignored, wherever they are. 0, or -1: the text is not of this
 * form.
 */
int code_form_read(const struct code_form *form, const char *text, size_t len,
		   struct ff1_string *string);

/* Whether they differ in their dashes alone. */
int code_forms_same(const struct code_form *a, const struct code_form *b);

/* Whether there is a text that is of both forms. */
int code_forms_overlap(const struct code_form *a, const struct code_form *b);

/*
 * How likely a text that somebody made up is a code, and how many codes a form may therefore have.
 *
 * Nothing but its place tells a code from other texts of its form, so a guess hits with the chance
 * codes / texts. It must not exceed 1 in 10^9: who tries a thousand texts a second, day and night,
 * then finds one code in eleven days on average; with a million codes of the default form one in a
 * thousand years.
 */
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
