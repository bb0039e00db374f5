/* The rows of CSV (RFC 4180), which may go over several lines. */
#ifndef CTL_CODES_CSV_ROWS_H
#define CTL_CODES_CSV_ROWS_H

#include "ctl/codes/line_reader.h"
#include "ctl/codes/text_buffer.h"

#define CSV_CELLS_MAX 100

struct csv_rows;

struct csv_row {
	int64_t line;      /* where it begins */
	const char *wrong; /* NULL: it is a row; otherwise why not */
	size_t cells_n;
	struct {
		const char *text; /* not ended by a NUL */
		size_t len;
	} cells[CSV_CELLS_MAX];
};

struct csv_rows *csv_rows_new(struct line_reader *reader); /* the reader is lent */
void csv_rows_free(struct csv_rows *rows);

/* The next row, until the next call; empty lines are left out. 1, or 0 at the end. */
int csv_rows_next(struct csv_rows *rows, struct csv_row *row);

#endif
