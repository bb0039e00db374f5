#include "common/log/trace.h"

#include <string.h>

unsigned trace_set;

static const char *const names[] = {
#define TRACE(name, text) [name] = text,
#include "common/log/trace_table.h"
#undef TRACE
};

/* The bits of one name, or 0. */
static unsigned name_bits(const char *name, size_t len)
{
	if (len == 3 && memcmp(name, "all", 3) == 0)
		return (1u << TRACE_COUNT) - 1;
	for (unsigned i = 0; i < TRACE_COUNT; i++)
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return 1u << i;
	return 0;
}

int trace_init(const char *list)
{
	trace_set = 0;
	while (*list) {
		size_t len = strcspn(list, ",");
		unsigned bits = name_bits(list, len);

		if (!bits)
			return -1;
		trace_set |= bits;
		list += len + (list[len] == ',');
	}
	return 0;
}

void trace_write(enum trace trace, int64_t number, const char *from, const char *to)
{
	const struct log_field fields[] = { LOG_S("of", names[trace]),
					    LOG_I("number", number),
					    LOG_S("from", from),
					    LOG_S("to", to),
					    { 0 } };

	log_unlimited(LOG_LEVEL_INFO, "trace", fields);
}
