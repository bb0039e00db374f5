#include "codes/chance.h"

#include <inttypes.h>
#include <stdio.h>

int64_t code_chance_codes_max(const struct code_form *form)
{
	unsigned __int128 most = form->size / CODE_CHANCE_ONE_IN;

	return most < CODE_CODES_MAX ? (int64_t)most : CODE_CODES_MAX;
}

char *code_chance_text(const struct code_form *form, int64_t codes, char out[CODE_CHANCE_SIZE])
{
	long double size = (long double)form->size;

	snprintf(out, CODE_CHANCE_SIZE, "%u^%u = %.2Lg texts: a guess hits with 1 in %.2Lg",
		 form->radix, form->free_n, size, size / (long double)(codes > 0 ? codes : 1));
	return out;
}

/* The least number of symbols with which so many codes are allowed; 0: there is none. */
static unsigned symbols_needed(const struct code_form *form, int64_t codes)
{
	for (unsigned n = 2; n <= CODE_TEXT_MAX; n++) {
		unsigned __int128 size = ff1_strings(form->radix, n);

		if (size / CODE_CHANCE_ONE_IN >= (unsigned __int128)codes)
			return n;
	}
	return 0;
}

static void advice_write(const struct code_form *form, int64_t codes, char *out, size_t size)
{
	unsigned n = symbols_needed(form, codes);

	if (n)
		snprintf(out, size, "%u symbols are enough", n);
	else
		snprintf(out, size, "a larger alphabet is needed");
}

/* All codes that a guess may hit. */
static int guess_check(const struct code_form *form, int64_t before, int64_t count,
		       char why[CODE_WHY_SIZE])
{
	char text[CODE_CHANCE_SIZE], advice[64];
	int64_t most = code_chance_codes_max(form);

	if (before + count <= most)
		return 0;
	advice_write(form, before + count, advice, sizeof(advice));
	snprintf(why, CODE_WHY_SIZE,
		 "%" PRId64 " codes and %" PRId64 " that exist are too many for %s: %s; allowed is "
		 "1 in %.0e or less, which is %" PRId64 " codes; %s",
		 count, before, form->pattern, code_chance_text(form, before + count, text),
		 (double)CODE_CHANCE_ONE_IN, most, advice);
	return -1;
}

static int twice_check(const struct code_form *form, int64_t own, int64_t others,
		       char why[CODE_WHY_SIZE])
{
	long double twice = (long double)own * (long double)others / (long double)form->size;

	if (twice * CODE_TWICE_ONE_IN <= 1)
		return 0;
	snprintf(why, CODE_WHY_SIZE,
		 "%" PRId64 " codes of %s and %" PRId64 " of other keys or forms, which may have "
		 "the same text: %.2Lg codes in %u^%u texts would be there twice; allowed is 1 in "
		 "%d; choose another prefix, or more symbols",
		 own, form->pattern, others, twice, form->radix, form->free_n, CODE_TWICE_ONE_IN);
	return -1;
}

int code_chance_check(const struct code_form *form, int64_t own, int64_t others, int64_t count,
		      char why[CODE_WHY_SIZE])
{
	return guess_check(form, own + others, count, why) ||
			       twice_check(form, own + count, others, why)
		       ? -1
		       : 0;
}
