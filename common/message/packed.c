#include "common/message/packed.h"

#include <string.h>

#define HEAD_LEN (sizeof(PACKED_HEAD) - 1)
#define TAIL_LEN (sizeof(PACKED_TAIL) - 1)

static size_t lines(const char *at, const char *end)
{
	size_t n = 1;

	while ((at = memchr(at, '\n', (size_t)(end - at)))) {
		at++;
		n++;
	}
	return n;
}

int packed_open(struct packed *packed, const char *body, size_t len, const char **error)
{
	if (len < HEAD_LEN + TAIL_LEN || memcmp(body, PACKED_HEAD, HEAD_LEN) != 0 ||
	    memcmp(body + len - TAIL_LEN, PACKED_TAIL, TAIL_LEN) != 0)
		return 0;
	packed->at = body + HEAD_LEN;
	packed->end = body + len - TAIL_LEN;
	*error = "more than 256 batches";
	return lines(packed->at, packed->end) <= PACKED_BATCHES_MAX ? 1 : -1;
}

int packed_next(struct packed *packed, const char **batch, size_t *len)
{
	const char *line = packed->at, *end;

	if (!line)
		return 0;
	end = memchr(line, '\n', (size_t)(packed->end - line));
	packed->at = end ? end + 1 : NULL;
	if (!end)
		end = packed->end;
	else if (end > line && end[-1] == ',')
		end--;
	*batch = line;
	*len = (size_t)(end - line);
	return 1;
}
