#include "common/base64.h"

int base64_read(const char *text, size_t len, int variant, void *out, size_t size, size_t *n)
{
	unsigned bits = 0;

	for (size_t i = 0; i < len; i++)
		bits |= (unsigned char)text[i];
	if (bits & 0x80)
		return -1;
	return sodium_base642bin(out, size, text, len, NULL, n, NULL, variant);
}
