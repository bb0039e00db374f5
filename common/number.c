#include "common/number.h"

#include <inttypes.h>
#include <stdio.h>

const char *number_text(int64_t number, char out[NUMBER_SIZE])
{
	snprintf(out, NUMBER_SIZE, "%" PRId64, number);
	return out;
}
