/*
 * Writes CSV by RFC 4180: a field that contains a comma, a quote or the end of a line, or that is
 * empty or begins or ends with a space, is in quotes; a line ends with CR LF.
 */
#ifndef CTL_TABLE_CSV_PUT_H
#define CTL_TABLE_CSV_PUT_H

#include <stddef.h>
#include <stdio.h>

/* Writes one field, without what separates it from the next. */
void csv_put(FILE *out, const char *text, size_t len);

#define CSV_END "\r\n"

#endif
