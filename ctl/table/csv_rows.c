/* libcsv gets a line at a time, so that it is known where a row begins and which line is wrong. */
#include "ctl/table/csv_rows.h"

#include "common/check.h"

#include <csv.h>
#include <stdlib.h>
#include <string.h>

struct csv_rows {
	struct csv_parser parser;
	enum csv_spaces spaces;
	struct line_reader *reader;
	struct text_buffer text; /* the cells of the row, one after the other */
	size_t ends[CSV_CELLS_MAX];
	size_t cells_n;
	size_t bytes; /* of the row so far */
	int rows_n;   /* that have ended in this line */
};

static int is_never_space(unsigned char c)
{
	(void)c;
	return 0;
}

static void parser_begin(struct csv_rows *rows)
{
	check(csv_init(&rows->parser, CSV_STRICT | CSV_STRICT_FINI) == 0);
	if (rows->spaces == CSV_SPACES_KEEP)
		csv_set_space_func(&rows->parser, is_never_space);
}

struct csv_rows *csv_rows_new(struct line_reader *reader, enum csv_spaces spaces)
{
	struct csv_rows *rows = calloc(1, sizeof(*rows));

	check(rows != NULL);
	rows->reader = reader;
	rows->spaces = spaces;
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

const char *csv_fault_text(enum csv_fault fault)
{
	switch (fault) {
	case ROW_FINE:
		return NULL;
	case ROW_LONG:
		return "the row is longer than 65536 bytes";
	case ROW_QUOTE:
	case ROW_AFTER_QUOTE:
		return "a quote is neither at the end of its cell nor doubled";
	case ROW_RETURN:
		return "a carriage return is in the middle of the line";
	case ROW_UNENDED:
		return "a quoted cell does not end before the end of the file";
	}
	return NULL;
}

static enum csv_fault line_feed(struct csv_rows *rows)
{
	const struct line_reader *reader = rows->reader;
	size_t n;

	rows->bytes += reader->len;
	if (reader->is_long || rows->bytes > LINE_MAX_BYTES)
		return ROW_LONG;
	n = csv_parse(&rows->parser, reader->text, reader->len, on_cell, on_row, rows);
	if (n != reader->len) {
		check(csv_error(&rows->parser) == CSV_EPARSE);
		return reader->text[n] == '"' ? ROW_QUOTE : ROW_AFTER_QUOTE;
	}
	return rows->rows_n > 1 ? ROW_RETURN : ROW_FINE;
}

/* The end of the file may end a row. */
static enum csv_fault end_feed(struct csv_rows *rows)
{
	return csv_fini(&rows->parser, on_cell, on_row, rows) ? ROW_UNENDED : ROW_FINE;
}

static void row_fill(const struct csv_rows *rows, struct csv_row *row)
{
	size_t begin = 0;

	row->cells_n = rows->cells_n;
	for (size_t i = 0; i < rows->cells_n && i < CSV_CELLS_MAX; i++) {
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

static int is_empty(const struct csv_rows *rows)
{
	const char *nothing = rows->spaces == CSV_SPACES_KEEP ? "\r\n" : " \t\r\n";

	return strspn(rows->reader->text, nothing) == rows->reader->len;
}

int csv_rows_next(struct csv_rows *rows, struct csv_row *row)
{
	*row = (struct csv_row){ 0 };
	row_begin(rows);
	for (int64_t at = rows->reader->read_bytes; line_next(rows->reader);
	     at = rows->reader->read_bytes) {
		if (!row->line && is_empty(rows))
			continue;
		if (!row->line) {
			row->line = rows->reader->number;
			row->at = at;
		}
		row->fault = line_feed(rows);
		if (row->fault != ROW_FINE) {
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
	row->fault = end_feed(rows);
	row_fill(rows, row);
	parser_renew(rows);
	return 1;
}
