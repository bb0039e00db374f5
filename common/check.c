#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *file, int line, const char *condition)
{
	fprintf(stderr, "level=fatal event=bug file=%s line=%d condition=\"%s\"\n", file, line,
		condition);
	abort();
}
