#include "common/message/number.h"

#include "common/check.h"

#include <ctype.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int id_parse(const char *text, size_t len, int64_t *id)
{
	int64_t value = 0;

	if (len == 0 || len >= ID_SIZE || text[0] == '0')
		return -1;
	for (size_t i = 0; i < len; i++) {
		int digit = text[i] - '0';

		if (digit < 0 || digit > 9)
			return -1;
		if (value > (INT64_MAX - digit) / 10)
			return -1;
		value = value * 10 + digit;
	}
	*id = value;
	return 0;
}

size_t id_format(int64_t id, char out[ID_SIZE])
{
	char digits[ID_SIZE];
	size_t n = 0;

	check(id >= 0);
	do
		digits[n++] = (char)('0' + id % 10);
	while ((id /= 10) > 0);
	for (size_t i = 0; i < n; i++)
		out[i] = digits[n - 1 - i];
	out[n] = '\0';
	return n;
}

const char *number_text(int64_t number, char out[NUMBER_SIZE])
{
	snprintf(out, NUMBER_SIZE, "%" PRId64, number);
	return out;
}

int number_parse(const char *text, int64_t most, int64_t *number)
{
	size_t digits = strspn(text, "0123456789");

	*number = strtoll(text, NULL, 10);
	return digits > 0 && digits <= 16 && text[digits] == '\0' && *number <= most ? 0 : -1;
}

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
