#include "ctl/codes/options.h"

#include <ctype.h>
#include <string.h>

static const char *prefix_read(const struct args *args)
{
	const char *prefix = args_text(args, "prefix");

	for (const char *p = prefix; p && *p; p++)
		if (!isascii((unsigned char)*p) || !isalnum((unsigned char)*p))
			args_fail("--prefix is \"%s\": allowed are letters and digits of ASCII",
				  prefix);
	return prefix ? prefix : "";
}

void options_form(const struct args *args, struct code_form *form)
{
	const char *pattern = args_text(args, "pattern"), *prefix = prefix_read(args);
	const char *alphabet = args_text(args, "alphabet");
	unsigned length = (unsigned)args_number(args, "length", 2, CODE_TEXT_MAX, CODE_LENGTH);
	char made[CODE_WIDTH_MAX + 1], why[CODE_WHY_SIZE];

	if (pattern && (args_has(args, "prefix") || args_has(args, "length")))
		args_fail("--pattern is \"%s\": not allowed together with --prefix or --length",
			  pattern);
	if (strlen(prefix) + length > CODE_TEXT_MAX || code_pattern_make(prefix, length, made))
		args_fail("--prefix and --length are %zu characters: allowed are %d",
			  strlen(prefix) + length, CODE_TEXT_MAX);
	if (code_form_parse(form, pattern ? pattern : made, alphabet ? alphabet : CODE_ALPHABET,
			    why))
		args_fail("%s", why);
}

enum sheet_format options_format(const struct args *args, const char *file)
{
	const char *format = args_text(args, "format"), *end = file ? strrchr(file, '.') : NULL;

	if (!format)
		return end && (strcmp(end, ".jsonl") == 0 || strcmp(end, ".ndjson") == 0)
			       ? SHEET_JSONL
			       : SHEET_CSV;
	for (int i = 0; sheet_format_names[i]; i++)
		if (strcmp(format, sheet_format_names[i]) == 0)
			return (enum sheet_format)i;
	args_fail("--format is \"%s\": allowed are csv and jsonl", format);
}
