#include "common/check.h"

#include "common/log/log_output.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *file, int line, const char *condition)
{
	char text[LOG_LINE_SIZE];
	int len = snprintf(text, sizeof(text) - 1,
			   "level=fatal event=bug file=%s line=%d condition=\"%s\"", file, line,
			   condition);
	size_t end = len < (int)sizeof(text) - 1 ? (size_t)len : sizeof(text) - 2;

	text[end] = '\n';
	log_output_last(text, end + 1);
	abort();
}
