#include "common/base64.h"

#include "common/check.h"

#include <ctype.h>
#include <stdlib.h>

int base64_read(const char *text, size_t len, int variant, void *out, size_t size, size_t *n)
{
	unsigned bits = 0;

	for (size_t i = 0; i < len; i++)
		bits |= (unsigned char)text[i];
	if (bits & 0x80)
		return -1;
	return sodium_base642bin(out, size, text, len, NULL, n, NULL, variant);
}

char *percent_decode(const char *text, size_t len)
{
	char *out = checked(malloc(len + 1)), *to = out;
	unsigned char byte;

	for (size_t i = 0; i < len; i++) {
		if (text[i] != '%') {
			*to++ = text[i];
			continue;
		}
		if (len - i < 3 || !isxdigit((unsigned char)text[i + 1]) ||
		    !isxdigit((unsigned char)text[i + 2]) ||
		    sodium_hex2bin(&byte, 1, text + i + 1, 2, NULL, NULL, NULL) || byte == 0) {
			free(out);
			return NULL;
		}
		*to++ = (char)byte;
		i += 2;
	}
	*to = '\0';
	return out;
}
