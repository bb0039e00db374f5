/*
 * Writes CSV by RFC 4180: a field that contains a comma, a quote or the end of a line, or that is
 * empty or begins or ends with a space, is in quotes; a line ends with CR LF.
 *
 * A spreadsheet takes a field that begins with = + - @, a tab or a CR for a formula, also in
 * quotes. For a spreadsheet such a field gets an apostrophe in front, which makes it text.
 */
#ifndef CTL_TABLE_CSV_PUT_H
#define CTL_TABLE_CSV_PUT_H

#include <stddef.h>
#include <stdio.h>

enum csv_reader { CSV_READ_EXACTLY, CSV_READ_BY_SPREADSHEET };

static inline enum csv_reader csv_reader_of(int has_option)
{
	return has_option ? CSV_READ_BY_SPREADSHEET : CSV_READ_EXACTLY;
}

/* Writes one field, without what separates it from the next. */
void csv_put(FILE *out, const char *text, size_t len, enum csv_reader reader);

#define CSV_END "\r\n"

/* Of a command whose file has texts that users have chosen. */
#define SPREADSHEET_OPTION                                                                \
	SWITCH("spreadsheet",                                                             \
	       "of CSV: an apostrophe before each field that begins with = + - @, which " \
	       "a spreadsheet would take for a formula")

#endif
