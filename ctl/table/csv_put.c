#include "ctl/table/csv_put.h"

#include <string.h>

static int needs_quotes(const char *text, size_t len)
{
	if (len == 0 || text[0] == ' ' || text[len - 1] == ' ')
		return 1;
	for (size_t i = 0; i < len; i++)
		if (memchr(",\"\r\n", text[i], 5)) /* or a NUL */
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
