/* Names of locks from templates. */
#include "lock/lock.h"

#include "common/check.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 32

static void value_write(FILE *out, const char *value)
{
	for (; *value; value++)
		fprintf(out,
			isalnum((unsigned char)*value) || strchr("-._~|@", *value) ? "%c"
										   : "%%%02X",
			(unsigned char)*value);
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

static int name_write(FILE *out, const char *template, const struct lock_argument *arguments,
		      size_t n, char why[LOCK_NAME_WHY_SIZE])
{
	uint32_t used = 0;
	size_t len, i;

	if (n > ARGUMENTS_MAX)
		return refuse(why, "there are more than %d arguments", ARGUMENTS_MAX);
	for (const char *p = template; *p; p++) {
		if (*p == '}')
			return refuse(why, "the template has a } without {");
		if (*p != '{') {
			fputc(*p, out);
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
		value_write(out, arguments[i].value);
		p += len;
	}
	for (i = 0; i < n; i++)
		if (!(used & (uint32_t)1 << i))
			return refuse(why, "the template has no {%.64s}", arguments[i].name);
	return 0;
}

int lock_name_format(char out[LOCK_NAME_SIZE], const char *template,
		     const struct lock_argument *arguments, size_t n, char why[LOCK_NAME_WHY_SIZE])
{
	size_t len;
	char *text;
	FILE *stream = checked(open_memstream(&text, &len));
	int rc = name_write(stream, template, arguments, n, why);

	check(fclose(stream) == 0);
	if (rc == 0 && len > LOCK_NAME_MAX)
		rc = refuse(why, "the name has %zu bytes: at most %d are allowed", len,
			    LOCK_NAME_MAX);
	if (rc == 0)
		memcpy(out, text, len + 1);
	free(text);
	return rc;
}
