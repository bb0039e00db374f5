/* Options that several commands of codes have. */
#ifndef CTL_CODES_OPTIONS_H
#define CTL_CODES_OPTIONS_H

#include "codes/form.h"
#include "ctl/args.h"
#include "ctl/codes/sheet.h"

#define FORM_OPTIONS                                                                        \
	OPTION("prefix", "PREFIX", "letters and digits in front of each code, and a dash"), \
		OPTION("length", "N", "number of symbols, without the prefix; default 13"), \
		OPTION("alphabet", "SYMBOLS",                                               \
		       "the symbols, 2 to 62 letters and digits; default " CODE_ALPHABET),  \
		OPTION("pattern", "PATTERN",                                                \
		       "the form, for example NOON-####-####, where each # is a symbol;\n"  \
		       "      instead of --prefix and --length")

/* The form that these options choose; a wrong one ends the process. */
void options_form(const struct args *args, struct code_form *form);

/* --format. If it is not given: by the end of the name `file`, or csv. */
enum sheet_format options_format(const struct args *args, const char *file);

#endif
