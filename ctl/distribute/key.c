#include "ctl/distribute/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t key_prefix(const char *name, char out[KEY_SIZE])
{
	return (size_t)snprintf(out, KEY_SIZE, "distribute/%s/", name);
}

uint32_t key_repeat(const char *key, size_t prefix_len)
{
	const char *digits = key + prefix_len;
	size_t n = strspn(digits, "0123456789");

	if (n == 0 || n > 6 || digits[n] || *digits == '0')
		return 0;
	return (uint32_t)strtoul(digits, NULL, 10);
}
