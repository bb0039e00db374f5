#include "ctl/codes/code_file.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

struct code_file {
	const char *path; /* lent */
	struct code_file_form form;
	struct line_reader reader;
	struct csv_rows *csv; /* NULL: JSON lines */
	struct json_arena *arena;
	int64_t bytes;
	size_t columns_n, code_column;
	struct text_buffer columns[CSV_CELLS_MAX]; /* their names, as strings of JSON */
	struct text_buffer metadata;
};

static _Noreturn void failed(const char *path)
{
	log_fatal("the file \"%s\" cannot be read: %s", path, strerror(errno));
}

/* The file is not what it is taken for: with the line that was read last, if it is this one. */
static _Noreturn void refuse(const struct code_file *file, int64_t line, const char *why)
{
	struct text_buffer shown = { 0 };

	if (file->reader.number == line) {
		text_add_string(&shown, " ");
		csv_line_show(&shown, &file->reader);
	}
	log_fatal("the file \"%s\", line %lld%s: %s; nothing was begun", file->path,
		  (long long)line, shown.data ? shown.data : "", why);
}

struct code_file_form code_file_form_read(const struct args *args, const char *path)
{
	struct code_file_form form = { .format = sheet_format_read(args, path),
				       .delimiter = csv_delimiter_read(args, path),
				       .column = args_text(args, "column") };

	if (form.format != SHEET_CSV && args_has(args, "delimiter"))
		args_fail("--delimiter is given with --format jsonl: allowed is csv");
	if (!form.column)
		form.column = "code";
	return form;
}

/* Takes a column of the header. NULL, or what is wrong. */
static const char *column_take(struct code_file *file, const char *name, size_t len)
{
	struct text_buffer *column = &file->columns[file->columns_n];
	const char *error;

	if (len == 0)
		return "a column has no name";
	text_add_json(column, name, len);
	if (!json_parse(file->arena, column->data, column->len, &error))
		return "the name of a column is not UTF-8 without control characters";
	for (size_t i = 0; i < file->columns_n; i++)
		if (file->columns[i].len == column->len &&
		    strncasecmp(file->columns[i].data, column->data, column->len) == 0)
			return "two columns have one name";
	file->columns_n++;
	return NULL;
}

static void header_read(struct code_file *file)
{
	struct text_buffer why = { 0 };
	const char *wrong;
	struct csv_row row;
	int code;

	if (!csv_rows_next(file->csv, &row))
		log_fatal("the file \"%s\" is empty: needed is a header with the column %s",
			  file->path, file->form.column);
	wrong = row.wrong;
	if (!wrong && row.cells_n > CSV_CELLS_MAX)
		wrong = "more than 100 columns were read";
	if (wrong)
		refuse(file, row.line, wrong);
	code = csv_column_find(&row, file->form.column);
	if (code == CSV_COLUMN_NONE) {
		char other = csv_other_delimiter(file->reader.text, file->reader.len - 1,
						 file->form.delimiter);

		text_add_string(&why, "the columns are ");
		csv_columns_show(&why, &row);
		text_add_string(&why, ", and none is ");
		text_add_shown(&why, file->form.column, strlen(file->form.column));
		text_add_string(&why, ": name the one that has the codes by --column");
		if (other) {
			text_add_string(&why, ", or another --delimiter: the line has a ");
			text_add_string(&why, csv_delimiter_name(other));
		}
		refuse(file, -1, why.data);
	}
	for (size_t i = 0; i < row.cells_n && !wrong; i++)
		wrong = column_take(file, row.cells[i].text, row.cells[i].len);
	if (wrong)
		refuse(file, row.line, wrong);
	file->code_column = (size_t)code;
}

/* From its beginning. */
static void file_begin(struct code_file *file)
{
	rewind(file->reader.file);
	file->reader.number = file->reader.read_bytes = 0;
	if (file->csv)
		csv_rows_free(file->csv);
	file->csv = csv_rows_new(&file->reader, file->form.delimiter, CSV_SPACES_DROP);
}

/* Reads all of it: columns that do not fit are noticed before the first code is stored. */
static void columns_check(struct code_file *file)
{
	struct csv_row row;

	file_begin(file);
	header_read(file);
	while (csv_rows_next(file->csv, &row))
		if (row.wrong)
			refuse(file, row.line, row.wrong);
	if (ferror(file->reader.file))
		failed(file->path);
	file_begin(file);
	csv_rows_next(file->csv, &row);
}

struct code_file *code_file_open(const char *path, const struct code_file_form *form)
{
	struct code_file *file = checked(calloc(1, sizeof(*file)));
	struct stat stat;

	file->path = path;
	file->form = *form;
	file->arena = json_arena_new();
	file->reader.file = fopen(path, "re");
	if (!file->reader.file || fstat(fileno(file->reader.file), &stat))
		failed(file->path);
	if (!S_ISREG(stat.st_mode))
		log_fatal("the file \"%s\" is not a regular file", path);
	file->bytes = stat.st_size;
	if (form->format == SHEET_CSV)
		columns_check(file);
	return file;
}

void code_file_close(struct code_file *file)
{
	fclose(file->reader.file);
	if (file->csv)
		csv_rows_free(file->csv);
	json_arena_free(file->arena);
	for (size_t i = 0; i < CSV_CELLS_MAX; i++)
		text_buffer_fini(&file->columns[i]);
	text_buffer_fini(&file->metadata);
	free(file);
}

/* Cells that are empty are left out. */
static void csv_row_take(struct code_file *file, const struct csv_row *csv, struct code_row *row)
{
	struct text_buffer *metadata = &file->metadata;
	const char *error;

	row->line = csv->line;
	row->wrong = csv->wrong; /* the file was changed meanwhile */
	if (row->wrong)
		return;
	row->code = csv->cells[file->code_column].text;
	row->code_len = csv->cells[file->code_column].len;
	text_buffer_clear(metadata);
	for (size_t i = 0; i < csv->cells_n; i++) {
		if (i == file->code_column || csv->cells[i].len == 0)
			continue;
		text_add(metadata, metadata->len ? "," : "{", 1);
		text_add(metadata, file->columns[i].data, file->columns[i].len);
		text_add(metadata, ":", 1);
		text_add_json(metadata, csv->cells[i].text, csv->cells[i].len);
	}
	if (metadata->len == 0)
		return;
	text_add(metadata, "}", 1);
	row->metadata = metadata->data;
	if (metadata->len > CODE_METADATA_MAX)
		row->wrong = "its other columns have more than 4096 bytes as JSON";
	else if (!json_parse(file->arena, metadata->data, metadata->len, &error))
		row->wrong = "its other columns are not UTF-8 without NUL characters";
}

static void json_row_take(struct code_file *file, struct code_row *row)
{
	const cJSON *object, *code;

	row->line = file->reader.number;
	if (file->reader.is_long) {
		row->wrong = "the line is longer than 65536 bytes";
		return;
	}
	object = json_parse(file->arena, file->reader.text, file->reader.len, &row->wrong);
	if (!object)
		return;
	row->wrong = NULL;
	code = cJSON_GetObjectItemCaseSensitive(object, file->form.column);
	if (!cJSON_IsObject(object) || !cJSON_IsString(code)) {
		row->wrong = "it is not an object with the string code";
		return;
	}
	row->code = code->valuestring;
	row->code_len = strlen(code->valuestring);
	row->metadata = cJSON_GetArraySize(object) > 1 ? file->reader.text : "";
	if (strlen(row->metadata) > CODE_METADATA_MAX)
		row->wrong = "the line has other members and more than 4096 bytes";
}

int code_file_next(struct code_file *file, struct code_row *row)
{
	struct line_reader *reader = &file->reader;
	struct csv_row csv;
	int is_row;

	*row = (struct code_row){ .metadata = "" };
	if (file->csv) {
		is_row = csv_rows_next(file->csv, &csv);
		if (is_row)
			csv_row_take(file, &csv, row);
	} else {
		do
			is_row = line_next(reader);
		while (is_row && strspn(reader->text, " \t\r\n") == reader->len);
		if (is_row)
			json_row_take(file, row);
	}
	if (ferror(reader->file))
		failed(file->path);
	return is_row;
}

void code_file_progress(const struct code_file *file, struct progress *progress)
{
	progress_show(progress, "codes", file->reader.read_bytes, file->bytes);
}

char *code_file_hash(const char *path, char out[CODE_FILE_HASH_SIZE])
{
	unsigned char bytes[65536], hash[crypto_hash_sha256_BYTES];
	FILE *file = fopen(path, "re");
	crypto_hash_sha256_state state;
	size_t n;

	if (!file)
		failed(path);
	crypto_hash_sha256_init(&state);
	while ((n = fread(bytes, 1, sizeof(bytes), file)) > 0)
		crypto_hash_sha256_update(&state, bytes, n);
	if (ferror(file))
		failed(path);
	crypto_hash_sha256_final(&state, hash);
	fclose(file);
	return sodium_bin2hex(out, CODE_FILE_HASH_SIZE, hash, sizeof(hash));
}
