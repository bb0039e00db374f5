#include "ctl/table.h"

#include "common/check.h"
#include "common/log/log.h"
#include "ctl/args.h"
#include "ctl/say.h"

#include <csv.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MODE 0600
#define FILE_BUFFER_BYTES 1048576
#define SHOWN_MAX 100
#define BOM "\xef\xbb\xbf" /* that some programs put in front of a text in UTF-8 */
#define DELIMITERS ",;\t"

int file_sync(FILE *stream)
{
	int fd = fileno(stream); /* -1: of --api */

	/* Pipes and terminals have nothing to bring to disk. */
	return fflush(stream) || (fd >= 0 && fsync(fd) && errno != EINVAL) ? -1 : 0;
}

int file_has_name(int fd, const char *path)
{
	struct stat opened, named;

	return fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
	       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

int file_lock(const char *path, int flags)
{
	int error;

	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags,
			      FILE_MODE);

		if (fd < 0)
			return -1;
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			error = errno;
			close(fd);
			errno = error;
			return -1;
		}
		if (file_has_name(fd, path))
			return fd;
		close(fd);
	}
}

static _Noreturn void file_failed(const char *path)
{
	const char *why = errno == EWOULDBLOCK ? "another couponctl is writing it"
			  : errno == ENOTSUP   ? "it is not a regular file"
			  : errno == EEXIST    ? "it exists already"
					       : strerror(errno);

	log_fatal_as(errno == EWOULDBLOCK ? CTL_AWAY : CTL_FAILED,
		     "the file \"%s\" cannot be written: %s", path, why);
}

void file_new_open(struct file_new *file, const char *path)
{
	struct stat about;
	int fd, is_private;

	if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
		errno = S_ISDIR(about.st_mode) ? EISDIR : ENOTSUP;
		file_failed(path);
	}
	*file = (struct file_new){ .path = strdup(path) };
	check(file->path != NULL && asprintf(&file->part, "%s.part", path) > 0);

	fd = file_lock(file->part, 0);
	if (fd < 0)
		file_failed(path);
	/* In a folder of all users somebody else may have made it, to read what is written. */
	is_private = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
		     about.st_uid == geteuid() && about.st_nlink == 1 && (about.st_mode & 077) == 0;
	if (!is_private) {
		if (unlink(file->part))
			file_failed(path);
		close(fd);
		fd = file_lock(file->part, O_EXCL);
	}
	if (fd < 0 || ftruncate(fd, 0))
		file_failed(path);
	file->stream = fdopen(fd, "w");
	check(file->stream != NULL && setvbuf(file->stream, NULL, _IOFBF, FILE_BUFFER_BYTES) == 0);
}

int file_folder_sync(const char *path)
{
	char *copy = checked(strdup(path));
	int fd, rc;

	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	if (fd < 0)
		return -1;
	rc = fsync(fd) && errno != EINVAL ? -1 : 0;
	close(fd);
	return rc;
}

/* Not every file system can refuse to replace: then a look before has to be enough. */
static int part_rename(const struct file_new *file, enum file_place place)
{
	if (place == FILE_REPLACE)
		return rename(file->part, file->path);
	if (renameat2(AT_FDCWD, file->part, AT_FDCWD, file->path, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (access(file->path, F_OK) == 0) {
		errno = EEXIST;
		return -1;
	}
	return rename(file->part, file->path);
}

static void file_new_fini(struct file_new *file)
{
	fclose(file->stream);
	free(file->path);
	free(file->part);
}

void file_new_place(struct file_new *file, enum file_place place)
{
	/* A write that failed may have left only this mark; the disk is full in most cases. */
	int broken = ferror(file->stream), error;

	if (broken)
		errno = errno ? errno : EIO;
	if (broken || file_sync(file->stream) || part_rename(file, place) ||
	    file_folder_sync(file->path)) {
		error = errno;
		unlink(file->part);
		errno = error;
		file_failed(file->path);
	}
	file_new_fini(file);
}

void file_new_drop(struct file_new *file)
{
	unlink(file->part);
	file_new_fini(file);
}

void text_buffer_fini(struct text_buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct text_buffer){ 0 };
}

void text_buffer_clear(struct text_buffer *buffer)
{
	buffer->len = 0;
	if (buffer->data)
		buffer->data[0] = '\0';
}

void text_add(struct text_buffer *buffer, const char *text, size_t len)
{
	if (buffer->room - buffer->len <= len) {
		buffer->room = 2 * buffer->room + len + 64;
		buffer->data = checked(realloc(buffer->data, buffer->room));
	}
	memcpy(buffer->data + buffer->len, text, len);
	buffer->len += len;
	buffer->data[buffer->len] = '\0';
}

void text_add_string(struct text_buffer *buffer, const char *text)
{
	text_add(buffer, text, strlen(text));
}

void text_add_json(struct text_buffer *buffer, const char *text, size_t len)
{
	size_t plain = 0; /* where bytes begin that stay as they are */

	text_add(buffer, "\"", 1);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		char escaped[8];

		if (c >= ' ' && c != '"' && c != '\\')
			continue;
		text_add(buffer, text + plain, i - plain);
		plain = i + 1;
		snprintf(escaped, sizeof(escaped), c < ' ' ? "\\u%04x" : "\\%c", c);
		text_add_string(buffer, escaped);
	}
	text_add(buffer, text + plain, len - plain);
	text_add(buffer, "\"", 1);
}

void text_add_shown(struct text_buffer *buffer, const char *text, size_t len)
{
	for (size_t i = 0; i < len && i < SHOWN_MAX; i++) {
		unsigned char first = (unsigned char)text[i];
		size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
		char escaped[8];

		if (i + bytes <= len && text_is_plain(text + i, bytes)) {
			text_add(buffer, text + i, bytes);
			i += bytes - 1;
		} else {
			snprintf(escaped, sizeof(escaped), "\\x%02x", first);
			text_add_string(buffer, escaped);
		}
	}
	if (len > SHOWN_MAX)
		text_add_string(buffer, "...");
}

int line_next(struct line_reader *reader)
{
	int c;

	reader->len = 0;
	reader->is_long = 0;
	while ((c = getc_unlocked(reader->file)) != EOF) {
		reader->read_bytes++;
		if (reader->len < LINE_READER_MAX)
			reader->text[reader->len++] = (char)c;
		else
			reader->is_long = 1;
		if (c == '\n')
			break;
	}
	reader->number++;
	reader->text[reader->len] = '\0';
	if (reader->number == 1 && strncmp(reader->text, BOM, strlen(BOM)) == 0) {
		reader->len -= strlen(BOM);
		memmove(reader->text, reader->text + strlen(BOM), reader->len + 1);
	}
	return reader->len > 0 && !ferror(reader->file);
}

const char *line_encoding_wrong(const struct line_reader *reader)
{
	const char *text = reader->text;

	if (reader->number != 1 || reader->len < 2)
		return NULL;
	return memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0 || !text[0] ||
			       !text[1]
		       ? "the file is in UTF-16: save it as UTF-8"
		       : NULL;
}

/*
 * libcsv gets one line at a time, so that it is known where a row begins and which line is wrong.
 */
struct csv_rows {
	struct csv_parser parser;
	char delimiter;
	enum csv_spaces spaces;
	struct line_reader *reader;
	struct csv_row *row;  /* the caller's */
	size_t bytes;         /* of the row so far */
	int rows_n;           /* that have ended in this line */
	size_t columns_n;     /* of the first row; 0: there was none yet */
	int64_t columns_line; /* where that is */
	char why[CSV_WHY_SIZE];
	size_t text_len;
	char text[LINE_READER_MAX]; /* the cells of the row, one after the other */
};

static int is_never_space(unsigned char c)
{
	(void)c;
	return 0;
}

/* Begins, also in place of one that was in use. */
static void parser_begin(struct csv_rows *rows)
{
	csv_free(&rows->parser);
	check(csv_init(&rows->parser, CSV_STRICT | CSV_STRICT_FINI) == 0);
	csv_set_delim(&rows->parser, (unsigned char)rows->delimiter);
	if (rows->spaces == CSV_SPACES_KEEP)
		csv_set_space_func(&rows->parser, is_never_space);
}

struct csv_rows *csv_rows_new(struct line_reader *reader, char delimiter, enum csv_spaces spaces)
{
	struct csv_rows *rows = checked(calloc(1, sizeof(*rows)));

	rows->reader = reader;
	rows->delimiter = delimiter;
	rows->spaces = spaces;
	parser_begin(rows);
	return rows;
}

void csv_rows_free(struct csv_rows *rows)
{
	csv_free(&rows->parser);
	free(rows);
}

static void on_cell(void *text, size_t len, void *context)
{
	struct csv_rows *rows = context;
	struct csv_row *row = rows->row;
	char *copy = rows->text + rows->text_len;

	check(len <= sizeof(rows->text) - rows->text_len);
	memcpy(copy, text ? text : "", len);
	rows->text_len += len;
	if (row->cells_n < CSV_CELLS_MAX) {
		row->cells[row->cells_n].text = copy;
		row->cells[row->cells_n].len = len;
	}
	row->cells_n++;
}

static void on_row(int end, void *context)
{
	struct csv_rows *rows = context;

	(void)end;
	rows->rows_n++;
}

/* NULL, or what is wrong. */
static const char *line_feed(struct csv_rows *rows)
{
	const struct line_reader *reader = rows->reader;

	if (line_encoding_wrong(reader))
		return line_encoding_wrong(reader);
	rows->bytes += reader->len;
	if (reader->is_long || rows->bytes > LINE_READER_MAX)
		return "the row is longer than 65536 bytes";
	if (csv_parse(&rows->parser, reader->text, reader->len, on_cell, on_row, rows) !=
	    reader->len) {
		check(csv_error(&rows->parser) == CSV_EPARSE);
		return "a quote is neither at the end of its cell nor doubled";
	}
	/* What follows a row in its line would be lost, or become part of the next one. */
	return rows->rows_n > 0 &&
			       (csv_fini(&rows->parser, on_cell, on_row, rows) || rows->rows_n > 1)
		       ? "a carriage return is in the middle of the line"
		       : NULL;
}

char csv_other_delimiter(const char *text, size_t len, char delimiter)
{
	int is_quoted = 0;

	for (size_t i = 0; i < len; i++) {
		is_quoted ^= text[i] == '"';
		if (!is_quoted && text[i] != delimiter && memchr(DELIMITERS, text[i], 3))
			return text[i];
	}
	return 0;
}

const char *csv_delimiter_name(char delimiter)
{
	return delimiter == ';' ? "semicolon" : delimiter == '\t' ? "tab" : "comma";
}

char csv_delimiter_read(const struct args *args, const char *file)
{
	static const char *const names[] = { "comma", "semicolon", "tab", ",", ";", "\t" };
	const char *value = args_text(args, "delimiter"), *end = file ? strrchr(file, '.') : NULL;

	for (size_t i = 0; value && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], value) == 0)
			return DELIMITERS[i % 3];
	if (value)
		args_fail("--delimiter is \"%s\": allowed are comma, semicolon and tab", value);
	return end && strcasecmp(end, ".tsv") == 0 ? '\t' : ',';
}

/* The text of the line, without its end and the spaces around it. */
static const char *line_trim(const struct line_reader *reader, size_t *len)
{
	const char *text = reader->text;

	*len = reader->len;
	while (*len > 0 && strchr(" \t\r\n", text[*len - 1]))
		--*len;
	for (; *len > 0 && (*text == ' ' || *text == '\t'); --*len)
		text++;
	return text;
}

/*
 * Takes the line sep=; of a spreadsheet. Returns whether the line is one; `wrong` is set unless it
 * names the delimiter.
 */
static int separator_take(struct csv_rows *rows, struct csv_row *row)
{
	const char *text = rows->reader->text, *end = text + rows->reader->len;
	char named;

	while (end > text && (end[-1] == '\r' || end[-1] == '\n'))
		end--;
	if (end - text != 5 || strncasecmp(text, "sep=", 4) != 0)
		return 0;
	named = text[4];
	if (named == rows->delimiter)
		return 1;
	row->line = rows->reader->number;
	row->wrong = rows->why;
	if (memchr(DELIMITERS, named, 3))
		snprintf(rows->why, sizeof(rows->why),
			 "it says that a %s is between columns, and a %s is expected: add "
			 "--delimiter %s",
			 csv_delimiter_name(named), csv_delimiter_name(rows->delimiter),
			 csv_delimiter_name(named));
	else
		snprintf(rows->why, sizeof(rows->why),
			 "it names what is between columns: allowed are comma, semicolon and tab");
	return 1;
}

/* NULL, or what is wrong with the columns of the row. */
static const char *columns_check(struct csv_rows *rows, const struct csv_row *row)
{
	size_t len;
	const char *text = line_trim(rows->reader, &len);
	char other;

	if (!rows->columns_n) {
		rows->columns_n = row->cells_n;
		rows->columns_line = row->line;
	}
	if (row->cells_n != rows->columns_n) {
		snprintf(rows->why, sizeof(rows->why),
			 "%zu columns were read, separated by a %s, and %zu in line %lld",
			 row->cells_n, csv_delimiter_name(rows->delimiter), rows->columns_n,
			 (long long)rows->columns_line);
		return rows->why;
	}
	if (row->cells_n > 1 || row->line != rows->reader->number)
		return NULL;
	other = csv_other_delimiter(text, len, rows->delimiter);
	if (!other)
		return NULL;
	snprintf(
		rows->why, sizeof(rows->why),
		"it has a %s, and a %s is expected between columns: add --delimiter %s, or put the "
		"text in quotes if the %s belongs to it",
		csv_delimiter_name(other), csv_delimiter_name(rows->delimiter),
		csv_delimiter_name(other), csv_delimiter_name(other));
	return rows->why;
}

/*
 * Reads the next row, for csv_rows_next(), which compares it with the others. 1, or 0 at the end.
 */
static int row_read(struct csv_rows *rows, struct csv_row *row)
{
	const char *blank = rows->spaces == CSV_SPACES_KEEP ? "\r\n" : " \t\r\n";
	const struct line_reader *line = rows->reader;

	*row = (struct csv_row){ 0 };
	rows->row = row;
	rows->bytes = rows->text_len = 0;
	rows->rows_n = 0;
	while (line_next(rows->reader)) {
		if (!row->line && strspn(line->text, blank) == line->len)
			continue;
		if (!row->line && !rows->columns_n && separator_take(rows, row)) {
			if (row->wrong)
				return 1;
			continue;
		}
		if (!row->line)
			row->line = line->number;
		row->wrong = line_feed(rows);
		if (row->wrong) {
			row->cells_n = 0;
			parser_begin(rows);
			return 1;
		}
		if (rows->rows_n > 0)
			return 1;
	}
	if (!row->line)
		return 0;
	/* The end of the file may end a row. */
	if (csv_fini(&rows->parser, on_cell, on_row, rows))
		row->wrong = "a quoted cell does not end before the end of the file";
	parser_begin(rows);
	return 1;
}

int csv_rows_next(struct csv_rows *rows, struct csv_row *row)
{
	int has_text;

	/* Spreadsheets leave rows at the end whose cells are all empty. */
	do {
		if (!row_read(rows, row))
			return 0;
		has_text = row->cells_n <= 1 || row->cells_n > CSV_CELLS_MAX;
		for (size_t i = 0; i < row->cells_n && !has_text; i++)
			has_text = row->cells[i].len > 0;
	} while (!row->wrong && !has_text);
	if (!row->wrong)
		row->wrong = columns_check(rows, row);
	return 1;
}

int csv_column_find(const struct csv_row *heading, const char *name)
{
	int found = CSV_COLUMN_NONE;

	for (size_t i = 0; i < heading->cells_n && i < CSV_CELLS_MAX; i++) {
		const char *text = heading->cells[i].text;
		size_t len = heading->cells[i].len;

		for (; len > 0 && *text == ' '; len--)
			text++;
		while (len > 0 && text[len - 1] == ' ')
			len--;
		if (len != strlen(name) || strncasecmp(text, name, len) != 0)
			continue;
		found = found == CSV_COLUMN_NONE ? (int)i : CSV_COLUMN_TWICE;
	}
	return found;
}

void csv_line_show(struct text_buffer *buffer, const struct line_reader *reader)
{
	size_t len;
	const char *text = line_trim(reader, &len);

	text_add_string(buffer, "\"");
	text_add_shown(buffer, text, len);
	text_add_string(buffer, "\"");
}

void csv_columns_show(struct text_buffer *buffer, const struct csv_row *heading)
{
	for (size_t i = 0; i < heading->cells_n && i < CSV_CELLS_MAX; i++) {
		text_add_string(buffer, i > 0 ? ", \"" : "\"");
		text_add_shown(buffer, heading->cells[i].text, heading->cells[i].len);
		text_add_string(buffer, "\"");
	}
}

static int needs_quotes(const char *text, size_t len)
{
	if (len == 0 || text[0] == ' ' || text[len - 1] == ' ')
		return 1;
	/* At the beginning of a file the mark would be dropped. */
	if (len >= strlen(BOM) && memcmp(text, BOM, strlen(BOM)) == 0)
		return 1;
	/* At the beginning of a file a reader would take the line for one of a spreadsheet. */
	if (len == 5 && strncasecmp(text, "sep=", 4) == 0)
		return 1;
	for (size_t i = 0; i < len; i++)
		if (memchr(",;\t\"\r\n", text[i], 7)) /* or a NUL */
			return 1;
	return 0;
}

void csv_put(FILE *out, const char *text, size_t len, enum csv_reader reader)
{
	int is_quoted = needs_quotes(text, len);

	if (is_quoted)
		putc_unlocked('"', out);
	if (reader == CSV_READ_BY_SPREADSHEET && len > 0 && memchr("=+-@\t\r", text[0], 6))
		putc_unlocked('\'', out);
	for (size_t i = 0; is_quoted && i < len; i++) {
		if (text[i] == '"')
			putc_unlocked('"', out);
		putc_unlocked(text[i], out);
	}
	if (is_quoted)
		putc_unlocked('"', out);
	else
		fwrite_unlocked(text, 1, len, out);
}

const char *const sheet_format_names[] = { [SHEET_CSV] = "csv", [SHEET_JSONL] = "jsonl", NULL };

enum sheet_format sheet_format_read(const struct args *args, const char *file)
{
	const char *end = file ? strrchr(file, '.') : NULL;
	int is_jsonl = end && (strcmp(end, ".jsonl") == 0 || strcmp(end, ".ndjson") == 0);

	return (enum sheet_format)args_choice(args, "format", is_jsonl ? SHEET_JSONL : SHEET_CSV);
}

enum csv_reader sheet_reader_read(const struct args *args, enum sheet_format format)
{
	if (args_has(args, "spreadsheet") && format != SHEET_CSV)
		args_fail("--spreadsheet is given with --format jsonl: allowed is csv");
	return args_has(args, "spreadsheet") ? CSV_READ_BY_SPREADSHEET : CSV_READ_EXACTLY;
}

void sheet_begin(struct sheet *sheet, const char *path)
{
	sheet->file = stdout;
	if (path) {
		file_new_open(&sheet->new, path);
		sheet->file = sheet->new.stream;
	}
	if (sheet->format != SHEET_CSV)
		return;
	for (const char *const *column = sheet->columns; *column; column++)
		fprintf(sheet->file, "%s%s", column == sheet->columns ? "" : ",", *column);
	fputs(sheet->csv_end, sheet->file);
}

void sheet_row(struct sheet *sheet, const struct cell *cells)
{
	struct text_buffer *line = &sheet->line;

	if (sheet->format == SHEET_CSV) {
		for (size_t i = 0; sheet->columns[i]; i++) {
			if (i > 0)
				putc_unlocked(',', sheet->file);
			if (cells[i].text)
				csv_put(sheet->file, cells[i].text, cells[i].len, sheet->reader);
		}
		fputs_unlocked(sheet->csv_end, sheet->file);
		return;
	}

	text_buffer_clear(line);
	for (size_t i = 0; sheet->columns[i]; i++) {
		text_add(line, i > 0 ? "," : "{", 1);
		text_add_json(line, sheet->columns[i], strlen(sheet->columns[i]));
		text_add(line, ":", 1);
		if (!cells[i].text)
			text_add(line, "null", 4);
		else if (cells[i].is_json)
			text_add(line, cells[i].text, cells[i].len);
		else
			text_add_json(line, cells[i].text, cells[i].len);
	}
	text_add(line, "}\n", 2);
	fwrite(line->data, 1, line->len, sheet->file);
}

int sheet_failed(struct sheet *sheet)
{
	if (!sheet->error && ferror(sheet->file))
		sheet->error = errno ? errno : EIO;
	return sheet->error != 0;
}

void sheet_end(struct sheet *sheet, enum file_place place)
{
	text_buffer_fini(&sheet->line);
	errno = sheet->error; /* of the row, not of what followed */
	if (sheet->file != stdout)
		file_new_place(&sheet->new, place);
	else if (sheet_failed(sheet) || file_sync(stdout))
		log_fatal("standard output cannot be written: %s",
			  strerror(sheet->error ? sheet->error : errno));
}

struct cell cell_text(const char *text)
{
	return (struct cell){ .text = text && *text ? text : NULL, .len = text ? strlen(text) : 0 };
}

struct cell cell_json(const char *text)
{
	struct cell cell = cell_text(text);

	cell.is_json = 1;
	return cell;
}
