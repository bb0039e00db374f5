#include "common/message/id.h"

#include "common/check.h"

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

	check(id > 0);
	for (; id > 0; id /= 10)
		digits[n++] = (char)('0' + id % 10);
	for (size_t i = 0; i < n; i++)
		out[i] = digits[n - 1 - i];
	out[n] = '\0';
	return n;
}
