#include "lock/name.h"

#include <ctype.h>
#include <stdarg.h>
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

__attribute__((format(printf, 2, 3))) static int refuse(char why[LOCK_NAME_WHY_SIZE],
							const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, LOCK_NAME_WHY_SIZE, format, arguments);
	va_end(arguments);
	return -1;
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

int lock_name_format(char out[LOCK_NAME_SIZE], const char *template,
		     const struct lock_argument *arguments, size_t n, char why[LOCK_NAME_WHY_SIZE])
{
	struct writer writer = { .out = out };
	uint32_t used = 0;
	size_t len, i;

	if (n > ARGUMENTS_MAX)
		return refuse(why, "there are more than %d arguments", ARGUMENTS_MAX);
	for (const char *p = template; *p; p++) {
		if (*p == '}')
			return refuse(why, "the template has a } without {");
		if (*p != '{') {
			byte_write(&writer, *p);
			continue;
		}
		len = strcspn(++p, "{}");
		if (p[len] != '}' || len == 0)
			return refuse(why, "the template has a { without a name and }");
		i = argument_find(arguments, n, p, len);
		if (i == n)
			return refuse(why, "there is no argument {%.*s}",
				      (int)(len < 64 ? len : 64), p);
		used |= (uint32_t)1 << i;
		value_write(&writer, arguments[i].value);
		p += len;
	}
	for (i = 0; i < n; i++)
		if (!(used & (uint32_t)1 << i))
			return refuse(why, "the template has no {%.64s}", arguments[i].name);
	if (writer.len > LOCK_NAME_MAX)
		return refuse(why, "the name has %zu bytes: at most %d are allowed", writer.len,
			      LOCK_NAME_MAX);
	out[writer.len] = '\0';
	return 0;
}
