#include "common/program/wrap.h"

#include <string.h>

#define COLUMNS 80
#define SPACES " \t\n"

/* Characters of UTF-8. */
static int width_of(const char *word, size_t len)
{
	int width = 0;

	for (size_t i = 0; i < len; i++)
		width += (word[i] & 0xc0) != 0x80;
	return width;
}

void wrap_print(const char *text, int indent, FILE *out)
{
	int column = 0;

	for (text += strspn(text, SPACES); *text; text += strspn(text, SPACES)) {
		size_t len = strcspn(text, SPACES);
		int width = width_of(text, len);

		if (column > 0 && column + 1 + width > COLUMNS) {
			putc('\n', out);
			column = 0;
		}
		fprintf(out, "%*s%.*s", column > 0 ? 1 : indent, "", (int)len, text);
		column += (column > 0 ? 1 : indent) + width;
		text += len;
	}
	putc('\n', out);
}
