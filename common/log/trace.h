/*
 * Tracing by name: COUPON_TRACE=redis,call writes a line (event=trace) for each change of state of
 * the named objects, not limited in rate. A trace that is off costs one comparison.
 */
#ifndef COMMON_LOG_TRACE_H
#define COMMON_LOG_TRACE_H

#include "common/log/log.h"

enum trace {
#define TRACE(name, text) name,
#include "common/log/trace_table.h"
#undef TRACE
	TRACE_COUNT
};

extern unsigned trace_set; /* a bit for each name that is on; read only */

/*
 * Enables the names in the list, separated by commas, or "all"; 0, or -1 at an unknown name. Before
 * threads start.
 */
int trace_init(const char *names);

/* `number` identifies the object: a tag, a coupon. */
void trace_write(enum trace trace, int64_t number, const char *from, const char *to);

static inline void trace_state(enum trace trace, int64_t number, const char *from, const char *to)
{
	if (trace_set & 1u << trace)
		trace_write(trace, number, from, to);
}

#endif
