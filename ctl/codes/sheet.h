/* Writes a table as CSV with a header, or as JSON lines. */
#ifndef CTL_CODES_SHEET_H
#define CTL_CODES_SHEET_H

#include "ctl/table/csv_put.h"
#include "ctl/table/text_buffer.h"

#include <stdio.h>

enum sheet_format { SHEET_CSV, SHEET_JSONL };

extern const char *const sheet_format_names[]; /* "csv", "jsonl", NULL */

struct sheet {
	FILE *file;
	enum sheet_format format;
	enum csv_reader reader;
	const char *const *columns; /* ended by NULL */
	struct text_buffer line;    /* of JSON; all zero at first */
};

struct cell {
	const char *text; /* NULL: empty, in JSON null */
	size_t len;
	int is_json; /* goes into JSON as it is */
};

/* Both leave errors to the caller, who checks the file at the end. */
void sheet_head(const struct sheet *sheet);
void sheet_row(struct sheet *sheet, const struct cell *cells); /* one for each column */
void sheet_fini(struct sheet *sheet);                          /* leaves the file open */

struct cell cell_text(const char *text); /* NULL or "": empty */

#endif
