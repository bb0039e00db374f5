#include "lock/name.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ARGUMENTS_MAX 32

struct writer {
	char *out;
	size_t len; /* may exceed LOCK_NAME_MAX: then it is too long */
};

static void byte_write(struct writer *writer, char byte)
{
	if (writer->len < LOCK_NAME_MAX)
		writer->out[writer->len] = byte;
	writer->len++;
}

static void value_write(struct writer *writer, const char *value)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *value; value++) {
		unsigned char byte = (unsigned char)*value;

		if (isalnum(byte) || strchr("-._~|@", byte)) {
			byte_write(writer, *value);
			continue;
		}
		byte_write(writer, '%');
		byte_write(writer, digits[byte >> 4]);
		byte_write(writer, digits[byte & 15]);
	}
}

static size_t argument_find(const struct lock_argument *arguments, size_t n, const char *name,
			    size_t len)
{
	size_t i = 0;

	while (i < n &&
	       (strlen(arguments[i].name) != len || memcmp(arguments[i].name, name, len) != 0))
		i++;
	return i;
}

/* Writes the argument of the placeholder at `p`. Returns the byte after it, or NULL with `why`. */
static const char *placeholder_write(struct writer *writer, const char *p,
				     const struct lock_argument *arguments, size_t n,
				     uint32_t *used, char why[LOCK_NAME_WHY_SIZE])
{
	size_t len = strcspn(p + 1, "{}"), i;

	if (p[1 + len] != '}' || len == 0) {
		snprintf(why, LOCK_NAME_WHY_SIZE, "the template has a { without a name and }");
		return NULL;
	}
	i = argument_find(arguments, n, p + 1, len);
	if (i == n) {
		snprintf(why, LOCK_NAME_WHY_SIZE, "there is no argument {%.*s}",
			 (int)(len < 64 ? len : 64), p + 1);
		return NULL;
	}
	*used |= (uint32_t)1 << i;
	value_write(writer, arguments[i].value);
	return p + len + 2;
}

static int all_are_used(const struct lock_argument *arguments, size_t n, uint32_t used,
			char why[LOCK_NAME_WHY_SIZE])
{
	for (size_t i = 0; i < n; i++) {
		if (used & (uint32_t)1 << i)
			continue;
		snprintf(why, LOCK_NAME_WHY_SIZE, "the template has no {%.64s}", arguments[i].name);
		return 0;
	}
	return 1;
}

int lock_name_format(char out[LOCK_NAME_SIZE], const char *template,
		     const struct lock_argument *arguments, size_t n, char why[LOCK_NAME_WHY_SIZE])
{
	struct writer writer = { .out = out };
	uint32_t used = 0;

	if (n > ARGUMENTS_MAX) {
		snprintf(why, LOCK_NAME_WHY_SIZE, "there are more than %d arguments",
			 ARGUMENTS_MAX);
		return -1;
	}
	for (const char *p = template; *p;) {
		if (*p == '}') {
			snprintf(why, LOCK_NAME_WHY_SIZE, "the template has a } without {");
			return -1;
		}
		if (*p != '{') {
			byte_write(&writer, *p++);
			continue;
		}
		p = placeholder_write(&writer, p, arguments, n, &used, why);
		if (!p)
			return -1;
	}
	if (!all_are_used(arguments, n, used, why))
		return -1;
	if (writer.len > LOCK_NAME_MAX) {
		snprintf(why, LOCK_NAME_WHY_SIZE, "the name has %zu bytes: at most %d are allowed",
			 writer.len, LOCK_NAME_MAX);
		return -1;
	}
	out[writer.len] = '\0';
	return 0;
}
