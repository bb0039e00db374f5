/* The rows of CSV (RFC 4180), which may go over several lines. */
#ifndef CTL_TABLE_CSV_ROWS_H
#define CTL_TABLE_CSV_ROWS_H

#include "ctl/table/line_reader.h"
#include "ctl/table/text_buffer.h"

#define CSV_CELLS_MAX 100

struct csv_rows;

enum csv_fault {
	ROW_FINE,
	ROW_LONG,
	ROW_QUOTE,       /* in a cell that does not begin with one */
	ROW_AFTER_QUOTE, /* something else than a comma */
	ROW_RETURN,      /* not at the end of a line */
	ROW_UNENDED      /* a quoted cell, at the end of the file */
};

struct csv_row {
	int64_t line;         /* where it begins: its number */
	int64_t at;           /* in bytes, from 0 */
	enum csv_fault fault; /* otherwise it is a row */
	size_t cells_n;       /* may be more than there are here */
	struct {
		const char *text; /* not ended by a NUL */
		size_t len;
	} cells[CSV_CELLS_MAX];
};

/* Spaces around a cell without quotes. RFC 4180 keeps them; people who type tables do not. */
enum csv_spaces { CSV_SPACES_KEEP, CSV_SPACES_DROP };

struct csv_rows *csv_rows_new(struct line_reader *reader, enum csv_spaces spaces); /* is lent */
void csv_rows_free(struct csv_rows *rows);

/* NULL: it is fine. */
const char *csv_fault_text(enum csv_fault fault);

/* The next row, until the next call; empty lines are left out. 1, or 0 at the end. */
int csv_rows_next(struct csv_rows *rows, struct csv_row *row);

#endif
