#include "ctl/codes/line_reader.h"

int line_next(struct line_reader *reader)
{
	int c;

	reader->len = 0;
	reader->is_long = 0;
	while ((c = getc_unlocked(reader->file)) != EOF) {
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
	return reader->len > 0 && !ferror(reader->file);
}
