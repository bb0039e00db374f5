/* Files that commands write, and the tables in files: CSV by RFC 4180, and JSON lines. */
#pragma once

#include "ctl/args.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * A file that appears whole or not at all: it is written beside its place as PATH.part, brought to
 * disk, and renamed. A process that ends before leaves the file that was there. PATH.part is locked
 * meanwhile; one that a killed process has left is replaced. Only the owner may read the file: it
 * names users, or has codes or keys.
 */
struct file_new {
	char *path, *part;
	FILE *stream; /* buffered; errors show in file_new_place() */
};

/*
 * file_new_open() and file_new_place() end the process with a sentence when they fail.
 *
 * Opens PATH.part. A path that is no regular file, for instance a device, is refused.
 */
void file_new_open(struct file_new *file, const char *path);

/* Whether a file that exists already is replaced, or is an error. */
enum file_place { FILE_REPLACE, FILE_KEEP };

/* Puts the file in its place; else the file that was there is unchanged. */
void file_new_place(struct file_new *file, enum file_place place);

/* Instead of file_new_place(): removes PATH.part. */
void file_new_drop(struct file_new *file);

/*
 * Opens the file, with these flags of open(2) too, and locks it. A new file is readable only by its
 * owner. Returns the descriptor, or -1 with errno: EWOULDBLOCK when another process has the lock.
 */
int file_lock(const char *path, int flags);

/* Whether `fd` is the file that has this name now: its writer may have put another in its place. */
int file_has_name(int fd, const char *path);

/* Brings what was written to the stream to disk. 0, or -1 with errno. */
int file_sync(FILE *stream);
/* Brings the names in the folder of this file to disk. 0, or -1 with errno. */
int file_folder_sync(const char *path);

/* A text that grows, with the spellings of JSON and messages. */
struct text_buffer { /* all zero: empty */
	char *data;  /* ended by a NUL, once anything was added */
	size_t len, room;
};

void text_buffer_fini(struct text_buffer *buffer);
void text_buffer_clear(struct text_buffer *buffer); /* keeps the memory */

void text_add(struct text_buffer *buffer, const char *text, size_t len);
void text_add_string(struct text_buffer *buffer, const char *text);

/* A string of JSON, in its quotes. Bytes above ASCII are left as they are. */
void text_add_json(struct text_buffer *buffer, const char *text, size_t len);
/* At most 100 bytes, for a message; what is no plain text (args.h) becomes \xNN. */
void text_add_shown(struct text_buffer *buffer, const char *text, size_t len);

/* Reads the lines of a file, each of a bounded length. */
#define LINE_READER_MAX 65536

struct line_reader { /* all zero but the file */
	FILE *file;
	int64_t number; /* of the line: 1… */
	int64_t read_bytes;
	size_t len;  /* with the end of the line, if there is one */
	int is_long; /* it has more, which was skipped */
	char text[LINE_READER_MAX + 1];
};

/* The next line. 1, or 0: there is none, or the file cannot be read (ferror()). */
int line_next(struct line_reader *reader);
/* NULL, or the sentence that the file is in UTF-16, which only its first line shows. */
const char *line_encoding_wrong(const struct line_reader *reader);

/*
 * Rows of CSV (RFC 4180), which may go over several lines. All rows have as many columns as the
 * first one: a row with more or fewer is wrong, and so is a row of one column in which another
 * delimiter stands outside of quotes. A line sep=; before the first row, as spreadsheets write it,
 * must name the delimiter, and is left out.
 */
#define CSV_CELLS_MAX 100
#define CSV_WHY_SIZE 256

struct csv_rows;

struct csv_row {
	int64_t line;      /* where it begins: its number */
	const char *wrong; /* NULL: it is a row; until the next call */
	size_t cells_n;    /* may be more than there are here */
	struct {
		const char *text; /* not ended by a NUL */
		size_t len;
	} cells[CSV_CELLS_MAX];
};

/* Spaces around a cell without quotes. RFC 4180 keeps them; people who type tables do not. */
enum csv_spaces { CSV_SPACES_KEEP, CSV_SPACES_DROP };

/* The reader is lent. */
struct csv_rows *csv_rows_new(struct line_reader *reader, char delimiter, enum csv_spaces spaces);
void csv_rows_free(struct csv_rows *rows);

/* The next row, until the next call; empty lines and rows are left out. 1, or 0 at the end. */
int csv_rows_next(struct csv_rows *rows, struct csv_row *row);

/* Returns another delimiter that the text has outside of quotes; 0: there is none. */
char csv_other_delimiter(const char *text, size_t len, char delimiter);

/* comma, semicolon or tab. */
const char *csv_delimiter_name(char delimiter);

/* --delimiter. If it is not given: a tab for a name that ends in .tsv, else a comma. */
char csv_delimiter_read(const struct args *args, const char *file);

#define DELIMITER_OPTION                                                                       \
	OPTION_WORDS(                                                                          \
		"delimiter", "DELIMITER", WORDS("comma", "semicolon", "tab"),                  \
		"what separates the columns of CSV: comma, semicolon or tab; default: tab if " \
		"the name of the file ends in .tsv, otherwise comma")

/* The place of a column; names are compared without case and without spaces around them. */
#define CSV_COLUMN_NONE (-1)
#define CSV_COLUMN_TWICE (-2)
int csv_column_find(const struct csv_row *heading, const char *name);

/* Add the last line that was read, in quotes, or the names of the columns, to a message. */
void csv_line_show(struct text_buffer *buffer, const struct line_reader *reader);
void csv_columns_show(struct text_buffer *buffer, const struct csv_row *heading);

/*
 * Writes CSV by RFC 4180: a field that contains a comma, a semicolon, a tab, a quote or the end of
 * a line, that is empty, begins or ends with a space or begins with a byte order mark, is in
 * quotes; a line ends with CR LF.
 *
 * A spreadsheet takes a field that begins with = + - @, a tab or a CR for a formula, also in
 * quotes. For a spreadsheet such a field gets an apostrophe in front, which makes it text.
 */
enum csv_reader { CSV_READ_EXACTLY, CSV_READ_BY_SPREADSHEET };

/* Writes one field, without what separates it from the next. */
void csv_put(FILE *out, const char *text, size_t len, enum csv_reader reader);

#define CSV_END "\r\n"

/* The option of a command whose file has texts that users have chosen. */
#define SPREADSHEET_OPTION                                                                        \
	SWITCH("spreadsheet",                                                                     \
	       "with CSV: write an apostrophe before each field that begins with = + - @, which " \
	       "a spreadsheet would take for a formula")

/* Writes a table as CSV with a header, or as JSON lines. */
enum sheet_format { SHEET_CSV, SHEET_JSONL };

extern const char *const sheet_format_names[]; /* "csv", "jsonl" */

/* --format. If it is not given: by the end of the name `file`, or csv. */
enum sheet_format sheet_format_read(const struct args *args, const char *file);
/* --spreadsheet, which is allowed with CSV alone. */
enum csv_reader sheet_reader_read(const struct args *args, enum sheet_format format);

struct sheet { /* the first four are the caller's; all else zero at first */
	enum sheet_format format;
	enum csv_reader reader;
	const char *const *columns; /* ended by NULL */
	const char *csv_end;        /* of a line of CSV */
	FILE *file;
	struct file_new new;
	int error;               /* of the first row that did not go out */
	struct text_buffer line; /* of JSON */
};

struct cell {
	const char *text; /* NULL: empty, in JSON null */
	size_t len;
	int is_json; /* goes into JSON as it is */
};

/* Begins the file with this name; NULL: standard output. */
void sheet_begin(struct sheet *sheet, const char *path);
void sheet_row(struct sheet *sheet, const struct cell *cells); /* one for each column */
/* Whether a row could not be written: then no more are needed, and sheet_end() says why. */
int sheet_failed(struct sheet *sheet);
/* Brings all rows to disk, and the file to its place. A failure ends the process. */
void sheet_end(struct sheet *sheet, enum file_place place);

struct cell cell_text(const char *text); /* NULL or "": empty */
struct cell cell_json(const char *text);
