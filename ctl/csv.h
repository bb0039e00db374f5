/*
 * CSV by RFC 4180. Written: a field that contains a comma, a quote or the end of a line, or that is
 * empty or begins or ends with a space, is in quotes; a line ends with CR LF. Read: the lines may
 * end with LF alone, too.
 */
#ifndef CTL_CSV_H
#define CTL_CSV_H

#include <stddef.h>
#include <stdio.h>

/* Writes one field, without what separates it from the next. */
void csv_put(FILE *out, const char *text, size_t len);

#define CSV_END "\r\n"

/* The first field of a record. */
struct csv_first {
	char *text; /* in the text that was given, without its quotes */
	size_t len;
	size_t lines; /* that the record has; more than 1: a field in quotes has several */
};

/*
 * Reads the record that begins at `*at`, and moves that to the next one. The first field is changed
 * in place where it has quotes. NULL, or what is wrong with the record, a constant.
 */
const char *csv_record(char *text, size_t len, size_t *at, struct csv_first *first);

#endif
