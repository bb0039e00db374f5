#include "codes/text.h"

int code_text_spell(const char *text, size_t len, char out[CODE_OTHERS_SIZE])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == ' ' || c == '-')
			continue;
		if (c < '!' || c > '~' || n == CODE_OTHERS_MAX)
			return -1;
		out[n++] = (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
	}
	out[n] = '\0';
	return n > 0 ? 0 : -1;
}
