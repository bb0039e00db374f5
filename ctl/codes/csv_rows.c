/* libcsv gets a line at a time, so that it is known where a row begins and which line is wrong. */
#include "ctl/codes/csv_rows.h"

#include "common/check.h"

#include <csv.h>
#include <stdlib.h>
#include <string.h>

struct csv_rows {
	struct csv_parser parser;
	struct line_reader *reader;
	struct text_buffer text; /* the cells of the row, one after the other */
	size_t ends[CSV_CELLS_MAX];
	size_t cells_n;
	size_t bytes; /* of the row so far */
	int rows_n;   /* that have ended in this line */
};

static void parser_begin(struct csv_rows *rows)
{
	check(csv_init(&rows->parser, CSV_STRICT | CSV_STRICT_FINI) == 0);
}

struct csv_rows *csv_rows_new(struct line_reader *reader)
{
	struct csv_rows *rows = calloc(1, sizeof(*rows));

	check(rows != NULL);
	rows->reader = reader;
	parser_begin(rows);
	return rows;
}

void csv_rows_free(struct csv_rows *rows)
{
	csv_free(&rows->parser);
	text_buffer_fini(&rows->text);
	free(rows);
}

static void on_cell(void *text, size_t len, void *context)
{
	struct csv_rows *rows = context;

	text_add(&rows->text, text ? text : "", len);
	if (rows->cells_n < CSV_CELLS_MAX)
		rows->ends[rows->cells_n] = rows->text.len;
	rows->cells_n++;
}

static void on_row(int end, void *context)
{
	struct csv_rows *rows = context;

	(void)end;
	rows->rows_n++;
}

/* Feeds a line. NULL, or what is wrong with the row. */
static const char *line_feed(struct csv_rows *rows)
{
	const struct line_reader *reader = rows->reader;

	rows->bytes += reader->len;
	if (reader->is_long || rows->bytes > LINE_MAX_BYTES)
		return "the row is longer than 65536 bytes";
	if (csv_parse(&rows->parser, reader->text, reader->len, on_cell, on_row, rows) !=
	    reader->len)
		return csv_error(&rows->parser) == CSV_EPARSE
			       ? "a quote is neither at the end of its cell nor doubled"
			       : csv_strerror(csv_error(&rows->parser));
	if (rows->rows_n > 1)
		return "a carriage return is in the middle of the line";
	if (rows->cells_n > CSV_CELLS_MAX)
		return "the row has more than 100 cells";
	return NULL;
}

/* The end of the file may end a row. */
static const char *end_feed(struct csv_rows *rows)
{
	if (csv_fini(&rows->parser, on_cell, on_row, rows) == 0)
		return NULL;
	return "a quoted cell does not end before the end of the file";
}

static void row_fill(const struct csv_rows *rows, struct csv_row *row)
{
	size_t begin = 0;

	row->cells_n = rows->cells_n;
	for (size_t i = 0; i < rows->cells_n; i++) {
		row->cells[i].text = rows->text.data + begin;
		row->cells[i].len = rows->ends[i] - begin;
		begin = rows->ends[i];
	}
}

static void row_begin(struct csv_rows *rows)
{
	text_buffer_clear(&rows->text);
	rows->cells_n = rows->bytes = 0;
	rows->rows_n = 0;
}

static void parser_renew(struct csv_rows *rows)
{
	csv_free(&rows->parser);
	parser_begin(rows);
}

static int is_empty(const struct line_reader *reader)
{
	return strspn(reader->text, " \t\r\n") == reader->len;
}

int csv_rows_next(struct csv_rows *rows, struct csv_row *row)
{
	*row = (struct csv_row){ 0 };
	row_begin(rows);
	while (line_next(rows->reader)) {
		if (!row->line && is_empty(rows->reader))
			continue;
		if (!row->line)
			row->line = rows->reader->number;
		row->wrong = line_feed(rows);
		if (row->wrong) {
			parser_renew(rows);
			return 1;
		}
		if (rows->rows_n > 0) {
			row_fill(rows, row);
			return 1;
		}
	}
	if (!row->line)
		return 0;
	row->wrong = end_feed(rows);
	row_fill(rows, row);
	parser_renew(rows);
	return 1;
}
