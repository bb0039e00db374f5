/* Some rows of a file of codes: stored in one transaction, then told on standard error. */
#ifndef CTL_CODES_IMPORT_CHUNK_H
#define CTL_CODES_IMPORT_CHUNK_H

#include "codes/text.h"
#include "ctl/codes/code_file.h"
#include "ctl/codes/stored.h"
#include "ctl/table/text_buffer.h"

#define IMPORT_CHUNK 20000

struct import_row {
	int64_t line;
	char text[CODE_OTHERS_SIZE];
	struct text_buffer spelling; /* empty: the text */
	struct text_buffer metadata; /* empty: none */
	struct text_buffer wrong;    /* empty: it is stored */
};

struct import_counts {
	int64_t added, present, refused; /* stored now, stored before, told */
};

struct import_chunk { /* all zero at first */
	size_t n;
	int64_t added; /* of these */
	struct import_row rows[IMPORT_CHUNK];
};

/* The code is checked: its spelling, and that it is none of the generated ones. */
void import_chunk_add(struct import_chunk *chunk, const struct stored *stored,
		      const struct code_row *row);

/* Stores the rows in a set, and notes why others are refused. Any thread that has the chunk. */
void import_chunk_store(struct import_chunk *chunk, struct db *db, int64_t set, int64_t coupon);

/* Tells the rows that are refused, and counts all. Then the chunk is empty. */
void import_chunk_tell(struct import_chunk *chunk, const char *path, struct import_counts *counts);

void import_chunk_fini(struct import_chunk *chunk);

#endif
