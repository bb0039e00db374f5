/* What commands print: JSON for --json, rows of a query, templates for people, progress. */
#pragma once

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
void output_raw(cJSON *object, const char *name, const char *json); /* "": null */
void output_null(cJSON *object, const char *name);
void output_add(cJSON *object, const char *name, cJSON *child); /* `child` becomes part of it */

/* Prints `object` as one line to standard output and frees it. */
void output_print(cJSON *object);

/* Writes 1234567 as 1,234,567. Returns `out`. */
#define OUTPUT_GROUPED_SIZE 32
char *output_grouped(int64_t number, char out[OUTPUT_GROUPED_SIZE]);

/*
 * Adds a member for each column of a row: numbers, booleans and JSON as they are, text[] as an
 * array, all else as a text. The column "a.b" is the member b of the object a.
 */
void output_row(cJSON *object, const PGresult *rows, int row);

/* An array with an object for each row. Clears the rows. */
cJSON *output_array(PGresult *rows);

/*
 * Replaces an amount by its text for people. `path` is as in a template; a member that is absent or
 * null stays so. Without a currency (NULL or "") the amount becomes null.
 */
void output_money(cJSON *object, const char *path, const char *currency);

/*
 * Prints a template, in which {member} stands for the text of a member, {a.b} for that of the
 * member b of the object a:
 *
 *	{member|word}   the word, where the member is absent, null or empty
 *	{member:-20}    in a field of 20 characters, to the left; {member:20} to the right
 *	{member:,}      a number with commas; {member:,12} in a field of 12 characters
 *	[member text]   the text, which may have fields and brackets, unless the member is absent,
 *	                null, empty, false or 0; [!member text] if it is
 */
void output_template(const char *template, const cJSON *object);

/* Prints the object as one line of JSON or by the template, and frees it. */
void output_say(cJSON *object, const char *template, int as_json);

/*
 * Names what the command has made, before the command prints that: if standard output cannot be
 * written, standard error has this sentence, and the exit status is CTL_UNKNOWN.
 */
void output_made(const char *format, ...) __attribute__((format(printf, 1, 2)));
int output_has_made(void);
/* Writes out what was printed. The command then returns this exit status, unless that fails. */
int output_end(int status, int has_changed);

/* output_say() of each row. `head`, unless NULL, is printed above the texts. Clears the rows. */
void output_rows(PGresult *rows, const char *head, const char *template, int as_json);

/*
 * The progress of a long command on standard error: a bar on a terminal, otherwise a line for each
 * tenth. All zero at first.
 */
#define PROGRESS_WHAT_SIZE 32

struct progress {
	char what[PROGRESS_WHAT_SIZE]; /* the step that is shown */
	int percent;                   /* that was shown last */
};

/* `done` of `total` of the step `what`; another step than the last begins a new line. */
void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total);

/* Removes the bar before other output; the next progress draws it again. */
void progress_hide(struct progress *progress);

/* Ends the line of the bar. */
void progress_end(struct progress *progress);
