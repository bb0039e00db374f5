#include "ctl/table/csv_put.h"

#include <string.h>

static int needs_quotes(const char *text, size_t len)
{
	if (len == 0 || text[0] == ' ' || text[len - 1] == ' ')
		return 1;
	for (size_t i = 0; i < len; i++)
		if (text[i] == '"' || text[i] == ',' || text[i] == '\r' || text[i] == '\n')
			return 1;
	return 0;
}

void csv_put(FILE *out, const char *text, size_t len)
{
	if (!needs_quotes(text, len)) {
		fwrite_unlocked(text, 1, len, out);
		return;
	}
	putc_unlocked('"', out);
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"')
			putc_unlocked('"', out);
		putc_unlocked(text[i], out);
	}
	putc_unlocked('"', out);
}
