#include "common/message/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 16

const char *number_text(int64_t number, char out[NUMBER_SIZE])
{
	snprintf(out, NUMBER_SIZE, "%" PRId64, number);
	return out;
}

int number_parse(const char *text, int64_t most, int64_t *number)
{
	size_t digits = strspn(text, "0123456789");

	*number = strtoll(text, NULL, 10);
	return digits > 0 && digits <= DIGITS_MAX && text[digits] == '\0' && *number <= most ? 0
											     : -1;
}
