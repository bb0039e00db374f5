/* What commands print: JSON for --json, rows of a query, numbers for people, progress. */
#ifndef CTL_OUTPUT_H
#define CTL_OUTPUT_H

#include <cjson/cJSON.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>

cJSON *output_object(void);
void output_text(cJSON *object, const char *name, const char *text); /* NULL or "": null */
void output_number(cJSON *object, const char *name,
		   int64_t number); /* exact, unlike cJSON's numbers */
/* Ids are strings, as in every answer: a program that reads numbers as doubles changes them. */
void output_id(cJSON *object, const char *name, int64_t id); /* 0: null */
void output_bool(cJSON *object, const char *name, int truth);
void output_null(cJSON *object, const char *name);
void output_add(cJSON *object, const char *name, cJSON *child); /* `child` becomes part of it */

/* Prints `object` as one line to standard output and frees it. */
void output_print(cJSON *object);

/* Writes 1234567 as 1,234,567. Returns `out`. */
#define OUTPUT_GROUPED_SIZE 32
char *output_grouped(int64_t number, char out[OUTPUT_GROUPED_SIZE]);

/* Rows of a query: by a table as JSON, by a template as text. */

enum column_kind {
	COLUMN_TEXT,   /* "" and NULL: null */
	COLUMN_NUMBER, /* 0 for NULL */
	COLUMN_SOME,   /* a number; 0 and NULL: null */
	COLUMN_ID,
	COLUMN_BOOL,
	COLUMN_LIST, /* texts separated by commas, as an array */
	COLUMN_RAW   /* a number, or JSON, as PostgreSQL writes it */
};

struct column {
	const char *name;   /* of the member of JSON; NULL ends a table */
	const char *column; /* of the query */
	enum column_kind kind;
};

/* Adds a member for each column. */
void output_columns(cJSON *object, const struct column *columns, const PGresult *rows, int row);

/*
 * Prints a template, in which {column} stands for the text of a column:
 *
 *	{column|word}   the word, where the column is NULL or empty
 *	{column:-20}    in a field of 20 characters, to the left; {column:20} to the right
 *	{column:,}      a number with commas
 *	[column text]   the text, which may have fields and brackets, unless the column is NULL,
 *	                empty or 0
 */
void output_template(const char *template, const PGresult *rows, int row);

/* Prints a row as a line: as an object of JSON, or by the template. */
void output_row(const PGresult *rows, int row, const struct column *columns, const char *template,
		int as_json);
void output_rows(const PGresult *rows, const struct column *columns, const char *template,
		 int as_json);

/*
 * The progress of a long command on standard error: a bar on a terminal, otherwise a line for each
 * tenth. All zero at first.
 */
#define PROGRESS_WHAT_SIZE 32

struct progress {
	char what[PROGRESS_WHAT_SIZE]; /* the step that is shown */
	int percent;                   /* as shown last */
};

/* `done` of `total` of the step `what`; another step than the last begins a new line. */
void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total);

/* Removes the bar before other output; the next progress draws it again. */
void progress_hide(struct progress *progress);

/* Ends the line of the bar. */
void progress_end(struct progress *progress);

#endif
