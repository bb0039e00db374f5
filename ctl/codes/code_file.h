/*
 * A file with codes: CSV with a header, one of whose columns is `code`, or JSON lines, objects with
 * the member `code`. What is imported may also have the state of each code and its user, and
 * metadata. A column or member that is not known may mean money, so that the file is refused.
 */
#pragma once

#include "ctl/output.h"
#include "ctl/table.h"

#include <stdint.h>

#define CODE_METADATA_MAX 4096 /* bytes of JSON */

struct code_row {
	int64_t line; /* where it begins */
	/* NULL: it is a row. Otherwise what is wrong, and what is allowed; the rest is not set. */
	const char *wrong;
	const char *code;
	size_t code_len;
	/* The rest is set for a file to import alone. */
	const char *state;    /* unused, used or revoked */
	const char *user;     /* of a used code, who has used it; else who alone may; "": none */
	const char *used_at;  /* as times.h reads it, as the next one; "": not known */
	const char *valid_to; /* until when it can be claimed; "": as the others */
	const char *metadata; /* an object of JSON; "": there is none */
};

struct code_file;

/* What the options say of the file. */
struct code_file_form {
	enum sheet_format format;
	char delimiter;     /* of CSV */
	const char *column; /* that has the codes; in JSON lines the member */
	int is_import;
	const char *metadata; /* --metadata: the columns that are kept as such; NULL: none */
};

#define CODE_FILE_OPTIONS                                                                       \
	OPTION_WORDS("format", "FORMAT", sheet_format_names,                                    \
		     "of the file: csv or jsonl; default: jsonl if the name ends in .jsonl or " \
		     ".ndjson, else csv"),                                                      \
		DELIMITER_OPTION,                                                               \
		OPTION("column", "NAME",                                                        \
		       "the column of CSV, or the member, that has the codes; default: code")

struct code_file_form code_file_form_read(const struct args *args, const char *path);

/*
 * Ends the process with a sentence, before any row is taken, when the file cannot be read, has no
 * such header, or has a line that is not CSV or has another number of columns.
 */
struct code_file *code_file_open(const char *path, const struct code_file_form *form);
void code_file_close(struct code_file *file);

#define CODE_FILE_METADATA_OPTION                                                                \
	OPTION("metadata", "LIST",                                                               \
	       "the columns that are kept as metadata, separated by commas: those that are not " \
	       "known")

/*
 * Reads the next row, which is valid until the next call. Returns 1, or 0 at the end. An unreadable
 * file ends the process.
 */
int code_file_next(struct code_file *file, struct code_row *row);

/* Shows how much of the file was read. */
void code_file_progress(const struct code_file *file, struct progress *progress);

/* Writes the SHA-256 of the whole file as hexadecimal digits; returns `out`. */
#define CODE_FILE_HASH_SIZE 65
char *code_file_hash(const char *path, char out[CODE_FILE_HASH_SIZE]);
