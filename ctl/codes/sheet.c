#include "ctl/codes/sheet.h"

#include <string.h>

const char *const sheet_format_names[] = { [SHEET_CSV] = "csv", [SHEET_JSONL] = "jsonl", NULL };

void sheet_head(const struct sheet *sheet)
{
	if (sheet->format != SHEET_CSV)
		return;
	for (const char *const *column = sheet->columns; *column; column++)
		fprintf(sheet->file, "%s%s", column == sheet->columns ? "" : ",", *column);
	putc('\n', sheet->file);
}

static void csv_row(const struct sheet *sheet, const struct cell *cells)
{
	for (size_t i = 0; sheet->columns[i]; i++) {
		if (i > 0)
			putc_unlocked(',', sheet->file);
		if (cells[i].text)
			csv_put(sheet->file, cells[i].text, cells[i].len, sheet->reader);
	}
	putc_unlocked('\n', sheet->file);
}

static void json_row(struct sheet *sheet, const struct cell *cells)
{
	text_buffer_clear(&sheet->line);
	for (size_t i = 0; sheet->columns[i]; i++) {
		text_add(&sheet->line, i > 0 ? "," : "{", 1);
		text_add_json(&sheet->line, sheet->columns[i], strlen(sheet->columns[i]));
		text_add(&sheet->line, ":", 1);
		if (!cells[i].text)
			text_add(&sheet->line, "null", 4);
		else if (cells[i].is_json)
			text_add(&sheet->line, cells[i].text, cells[i].len);
		else
			text_add_json(&sheet->line, cells[i].text, cells[i].len);
	}
	text_add(&sheet->line, "}\n", 2);
	fwrite(sheet->line.data, 1, sheet->line.len, sheet->file);
}

void sheet_row(struct sheet *sheet, const struct cell *cells)
{
	switch (sheet->format) {
	case SHEET_CSV:
		csv_row(sheet, cells);
		break;
	case SHEET_JSONL:
		json_row(sheet, cells);
		break;
	}
}

void sheet_fini(struct sheet *sheet)
{
	text_buffer_fini(&sheet->line);
}

struct cell cell_text(const char *text)
{
	return (struct cell){ .text = text && *text ? text : NULL, .len = text ? strlen(text) : 0 };
}
