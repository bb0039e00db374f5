#include "ctl/rush/codes.h"

#include "common/check.h"
#include "common/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds the line's code, unless it is the header. */
static void line_take(struct rush_codes *codes, const char *path, const char *line, size_t number)
{
	size_t len = strcspn(line, ",\r\n");

	if (number == 1 && len == 4 && memcmp(line, "code", len) == 0)
		return;
	if (len == 0 || len > RUSH_CODE_MAX || memchr(line, '"', len) || memchr(line, '\\', len))
		log_fatal("%s:%zu: not a code: needed is a file that codes generate has written as "
			  "CSV",
			  path, number);
	memcpy(codes->list[codes->n], line, len);
	codes->list[codes->n++][len] = '\0';
}

void rush_codes_read(struct rush_codes *codes, const struct args *args, size_t needed)
{
	const char *path = args_text(args, "codes");
	char *line = NULL;
	size_t size = 0;
	FILE *file;

	*codes = (struct rush_codes){ .list = NULL };
	if (!path)
		return;
	file = fopen(path, "r");
	if (!file)
		log_fatal("%s cannot be read: %s", path, strerror(errno));
	codes->list = calloc(needed, sizeof(*codes->list));
	check(codes->list != NULL);
	for (size_t number = 1; codes->n < needed && getline(&line, &size, file) > 0; number++)
		line_take(codes, path, line, number);
	free(line);
	fclose(file);
	if (codes->n < needed)
		log_fatal("%s has %zu codes, and the rush has %zu users", path, codes->n, needed);
}

void rush_codes_fini(struct rush_codes *codes)
{
	free(codes->list);
}
