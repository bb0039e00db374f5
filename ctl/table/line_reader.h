/* Reads the lines of a file, or of bytes in memory, each of a bounded length. */
#ifndef CTL_TABLE_LINE_READER_H
#define CTL_TABLE_LINE_READER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LINE_MAX_BYTES 65536

struct line_reader { /* all zero but the file, or the memory */
	FILE *file;
	const char *memory; /* instead of a file; what was read may be changed */
	size_t memory_len;
	int64_t number; /* of the line: 1… */
	int64_t read_bytes;
	size_t len;  /* with the end of the line, if there is one */
	int is_long; /* it has more, which was skipped */
	char text[LINE_MAX_BYTES + 1];
};

/* The next line. 1, or 0: there is none, or the file cannot be read (ferror()). */
int line_next(struct line_reader *reader);

#endif
