/*
 * CSV, with each delimiter, and with spaces around cells kept or dropped: the cells of a row,
 * written again, are read as the same. All rows have the number of cells of the first one.
 */
#include "tests/fuzz/fuzz.h"

#include "ctl/table.h"

#include <stdlib.h>

static struct csv_rows *rows_new(struct line_reader *reader, const char *text, size_t len,
				 char delimiter, enum csv_spaces spaces)
{
	memset(reader, 0, sizeof(*reader));
	reader->file = fmemopen((void *)(uintptr_t)text, len, "r");
	check(reader->file != NULL);
	return csv_rows_new(reader, delimiter, spaces);
}

static void row_check(const struct csv_row *row)
{
	static struct line_reader reader;
	struct csv_rows *rows;
	struct csv_row again;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	check(out != NULL);
	for (size_t i = 0; i < row->cells_n; i++) {
		fputs(i > 0 ? "," : "", out);
		csv_put(out, row->cells[i].text, row->cells[i].len, CSV_READ_EXACTLY);
	}
	fputs(CSV_END, out);
	fclose(out);
	rows = rows_new(&reader, text, len, ',', CSV_SPACES_KEEP);
	check(csv_rows_next(rows, &again) == 1 && !again.wrong);
	check(again.cells_n == row->cells_n);
	for (size_t i = 0; i < row->cells_n; i++)
		check(again.cells[i].len == row->cells[i].len &&
		      memcmp(again.cells[i].text, row->cells[i].text, row->cells[i].len) == 0);
	check(csv_rows_next(rows, &again) == 0);
	csv_rows_free(rows);
	fclose(reader.file);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct line_reader reader;
	struct bytes bytes = { data, size };
	uint8_t how = bytes_u8(&bytes);
	enum csv_spaces spaces = how & 1 ? CSV_SPACES_DROP : CSV_SPACES_KEEP;
	struct csv_rows *rows = rows_new(&reader, (const char *)bytes.at, bytes.left,
					 ",;\t,"[how >> 1 & 3], spaces);
	struct csv_row row;
	size_t columns_n = 0;
	int64_t line = 0;

	while (csv_rows_next(rows, &row)) {
		check(row.line > line);
		line = row.line;
		columns_n = columns_n || row.wrong ? columns_n : row.cells_n;
		check(row.wrong || row.cells_n == columns_n);
		if (!row.wrong && row.cells_n <= CSV_CELLS_MAX)
			row_check(&row);
	}
	csv_rows_free(rows);
	fclose(reader.file);
	return 0;
}
