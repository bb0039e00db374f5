#include "ctl/table/line_reader.h"

static int byte_next(struct line_reader *reader)
{
	if (reader->file)
		return getc_unlocked(reader->file);
	if ((size_t)reader->read_bytes == reader->memory_len)
		return EOF;
	return (unsigned char)reader->memory[reader->read_bytes];
}

int line_next(struct line_reader *reader)
{
	int c;

	reader->len = 0;
	reader->is_long = 0;
	while ((c = byte_next(reader)) != EOF) {
		reader->read_bytes++;
		if (reader->len < LINE_MAX_BYTES)
			reader->text[reader->len++] = (char)c;
		else
			reader->is_long = 1;
		if (c == '\n')
			break;
	}
	reader->number++;
	reader->text[reader->len] = '\0';
	return reader->len > 0 && !(reader->file && ferror(reader->file));
}
