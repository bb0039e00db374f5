#include "codes/form.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GROUP 4
#define SYMBOLS "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

static char other_case(char c)
{
	return (char)(isupper((unsigned char)c) ? tolower((unsigned char)c)
						: toupper((unsigned char)c));
}

int code_form_parse(struct code_form *form, const char *pattern, const char *alphabet,
		    char why[CODE_WHY_SIZE])
{
	size_t n = strlen(alphabet), symbols_n = strspn(alphabet, SYMBOLS);
	unsigned least = 2, most = CODE_TEXT_MAX;
	int has_upper = 0, has_lower = 0;
	const char *twice = NULL;

	memset(form, 0, sizeof(*form));
	for (size_t i = 0; i < n && !twice; i++)
		twice = strchr(alphabet + i + 1, alphabet[i]);
	if (symbols_n < n)
		snprintf(why, CODE_WHY_SIZE,
			 "the alphabet is \"%.100s\": character %zu is not allowed, only letters "
			 "and digits of ASCII",
			 alphabet, symbols_n + 1);
	else if (twice)
		snprintf(why, CODE_WHY_SIZE,
			 "the alphabet is \"%.100s\": it has \"%c\" twice, allowed is once",
			 alphabet, *twice);
	else if (n < 2)
		snprintf(why, CODE_WHY_SIZE,
			 "the alphabet is \"%s\": allowed are 2 to %d letters and digits", alphabet,
			 CODE_ALPHABET_MAX);
	if (symbols_n < n || twice || n < 2)
		return -1;

	memset(form->digits, -1, sizeof(form->digits));
	for (int c = '0'; c <= 'z'; c++) {
		if (!strchr(alphabet, c))
			continue;
		has_upper |= isupper(c);
		has_lower |= islower(c);
		form->digits[c] = (signed char)form->radix;
		form->alphabet[form->radix++] = (char)c;
	}
	form->folds = !has_upper || !has_lower;
	form->is_lower = has_lower;
	for (unsigned i = 0; form->folds && i < form->radix; i++)
		form->digits[(unsigned char)other_case(form->alphabet[i])] = (signed char)i;

	if (*pattern == '-') {
		snprintf(why, CODE_WHY_SIZE,
			 "the pattern is \"%.150s\": a dash is not allowed at the beginning: a "
			 "spreadsheet would take the codes for formulas, couponctl for options",
			 pattern);
		return -1;
	}
	for (const char *p = pattern; *p; p++) {
		char symbol = *p; /* as codes have it */

		if (!strchr(SYMBOLS "-#", *p)) {
			snprintf(why, CODE_WHY_SIZE,
				 "the pattern is \"%.150s\": character %d is not allowed, only "
				 "letters and digits of ASCII, dashes, and # for a symbol of the "
				 "alphabet",
				 pattern, (int)(p - pattern) + 1);
			return -1;
		}
		if (form->width == CODE_WIDTH_MAX || (*p != '-' && form->length == CODE_TEXT_MAX)) {
			snprintf(why, CODE_WHY_SIZE,
				 "the pattern is \"%.150s\": allowed are at most %d characters, "
				 "and %d with dashes",
				 pattern, CODE_TEXT_MAX, CODE_WIDTH_MAX);
			return -1;
		}
		if (form->folds)
			symbol = (char)(form->is_lower ? tolower((unsigned char)*p)
						       : toupper((unsigned char)*p));
		form->pattern[form->width++] = symbol;
		if (*p != '-')
			form->plain[form->length++] = symbol;
		form->free_n += *p == '#';
	}

	form->size = ff1_strings(form->radix, form->free_n);
	form->last_n = ff1_power(form->radix, form->free_n - form->free_n / 2);
	if (form->size)
		return 0;

	/* Tells the numbers of symbols that FF1 allows. */
	while (ff1_strings(form->radix, least) == 0)
		least++;
	while (ff1_strings(form->radix, most) == 0)
		most--;
	snprintf(why, CODE_WHY_SIZE,
		 "the pattern \"%s\" has %u symbols of an alphabet of %u: allowed are %u to %u",
		 form->pattern, form->free_n, form->radix, least, most);
	return -1;
}

int code_pattern_make(const char *prefix, unsigned length, char out[CODE_WIDTH_MAX + 1])
{
	unsigned groups = length / GROUP;
	size_t n = strlen(prefix);

	/* What is left over makes groups longer, or, if there are too few, is one more. */
	if (groups == 0 || length % GROUP > groups)
		groups++;
	if (n + 1 + length + groups > CODE_WIDTH_MAX)
		return -1;
	memcpy(out, prefix, n);
	if (n)
		out[n++] = '-';
	for (unsigned i = 0; i < groups; i++) {
		unsigned symbols = length / groups + (i < length % groups);

		if (i > 0)
			out[n++] = '-';
		memset(out + n, '#', symbols);
		n += symbols;
	}
	out[n] = '\0';
	return 0;
}

void code_form_write(const struct code_form *form, const struct ff1_string *string, char *out)
{
	uint64_t part = string->last;
	unsigned left = form->free_n;

	for (size_t i = form->width; i-- > 0;) {
		if (form->pattern[i] != '#') {
			out[i] = form->pattern[i];
			continue;
		}
		if (left-- == form->free_n / 2)
			part = string->first;
		out[i] = form->alphabet[part % form->radix];
		part /= form->radix;
	}
}

static int literal_matches(const struct code_form *form, char wanted, char c)
{
	return c == wanted || (form->folds && isascii(c) && c == other_case(wanted));
}

size_t code_ignored_length(const char *text, size_t len)
{
	static const struct {
		unsigned first, last;
	} ranges[] = {
		{ 0x0085, 0x0085 }, { 0x00a0, 0x00a0 }, /* next line, no-break space */
		{ 0x00ad, 0x00ad }, { 0x1680, 0x1680 }, /* soft hyphen, ogham space */
		{ 0x180e, 0x180e },                     /* vowel separator */
		{ 0x2000, 0x200f }, { 0x2010, 0x2015 }, /* spaces and marks; hyphens and dashes */
		{ 0x2028, 0x202f },                     /* separators, marks, a space */
		{ 0x2043, 0x2043 }, { 0x205f, 0x2064 }, /* hyphen bullet; a space, joiners */
		{ 0x2066, 0x2069 }, { 0x2212, 0x2212 }, /* marks, minus */
		{ 0x2e3a, 0x2e3b }, { 0x3000, 0x3000 }, /* long dashes, wide space */
		{ 0xfe58, 0xfe58 }, { 0xfe63, 0xfe63 }, /* small dash and hyphen */
		{ 0xfeff, 0xfeff }, { 0xff0d, 0xff0d }, /* byte order mark, wide hyphen */
	};
	const unsigned char *bytes = (const unsigned char *)text;
	unsigned point;
	size_t n;

	if (len == 0 || bytes[0] < 0x80)
		return len > 0 && memchr("- \t\n\v\f\r", bytes[0], 7) != NULL;
	n = bytes[0] < 0xe0 ? 2 : 3;
	if (bytes[0] < 0xc2 || bytes[0] > 0xef || len < n || (bytes[1] & 0xc0) != 0x80 ||
	    (bytes[n - 1] & 0xc0) != 0x80)
		return 0;
	point = n == 2 ? (bytes[0] & 0x1fu) << 6 | (bytes[1] & 0x3fu)
		       : (bytes[0] & 0x0fu) << 12 | (bytes[1] & 0x3fu) << 6 | (bytes[2] & 0x3fu);
	if (n == 3 && point < 0x800)
		return 0; /* no UTF-8 */
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		if (point >= ranges[i].first && point <= ranges[i].last)
			return n;
	return 0;
}

int code_form_read(const struct code_form *form, const char *text, size_t len,
		   struct ff1_string *string)
{
	unsigned free_n = 0;
	size_t n = 0, ignored;

	*string = (struct ff1_string){ 0 };
	for (size_t i = 0; i < len; i++) {
		uint64_t *part = free_n < form->free_n / 2 ? &string->first : &string->last;
		int digit = form->digits[(unsigned char)text[i]];

		ignored = code_ignored_length(text + i, len - i);
		if (ignored > 0) {
			i += ignored - 1;
			continue;
		}
		if (n == form->length)
			return -1;
		if (form->plain[n++] != '#') {
			if (!literal_matches(form, form->plain[n - 1], text[i]))
				return -1;
			continue;
		}
		if (digit < 0)
			return -1;
		*part = *part * form->radix + (uint64_t)digit;
		free_n++;
	}
	return n == form->length ? 0 : -1;
}

/* Whether a text of the form may have this byte at this place. */
static int place_has(const struct code_form *form, size_t place, unsigned char byte)
{
	char wanted = form->plain[place];

	return wanted == '#' ? form->digits[byte] >= 0 : literal_matches(form, wanted, (char)byte);
}

int code_forms_same(const struct code_form *a, const struct code_form *b)
{
	return strcmp(a->plain, b->plain) == 0 && strcmp(a->alphabet, b->alphabet) == 0;
}

int code_forms_overlap(const struct code_form *a, const struct code_form *b)
{
	if (a->length != b->length)
		return 0;
	for (size_t place = 0; place < a->length; place++) {
		int shared = 0;

		for (unsigned char byte = '0'; byte <= 'z'; byte++)
			shared |= place_has(a, place, byte) && place_has(b, place, byte);
		if (!shared)
			return 0;
	}
	return 1;
}

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

int code_chance_check(const struct code_form *form, int64_t own, int64_t others, int64_t count,
		      char why[CODE_WHY_SIZE])
{
	char text[CODE_CHANCE_SIZE], advice[64] = "a larger alphabet is needed";
	long double twice = (long double)(own + count) * (long double)others /
			    (long double)form->size;
	int64_t most = code_chance_codes_max(form), all = own + others + count;

	if (all > most) { /* those that a guess may hit */
		for (unsigned n = 2; n <= CODE_TEXT_MAX; n++) {
			if (ff1_strings(form->radix, n) / CODE_CHANCE_ONE_IN <
			    (unsigned __int128)all)
				continue;
			snprintf(advice, sizeof(advice), "%u symbols are enough", n);
			break;
		}
		snprintf(why, CODE_WHY_SIZE,
			 "%" PRId64 " codes and %" PRId64 " that exist are too many for %s: %s; "
			 "allowed is 1 in %.0e or less, which is %" PRId64 " codes; %s",
			 count, own + others, form->pattern, code_chance_text(form, all, text),
			 (double)CODE_CHANCE_ONE_IN, most, advice);
		return -1;
	}
	if (twice * CODE_TWICE_ONE_IN <= 1)
		return 0;
	snprintf(why, CODE_WHY_SIZE,
		 "%" PRId64 " codes of %s and %" PRId64 " of other keys or forms, which may have "
		 "the same text: %.2Lg codes in %u^%u texts would be there twice; allowed is 1 in "
		 "%d; choose another prefix, or more symbols",
		 own + count, form->pattern, others, twice, form->radix, form->free_n,
		 CODE_TWICE_ONE_IN);
	return -1;
}
