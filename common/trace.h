/*
 * Tracing by name: COUPON_TRACE=redis,call writes a line (event=trace) for each change of state of
 * what these names stand for, not limited in rate. Off, a trace costs one comparison.
 */
#ifndef COMMON_TRACE_H
#define COMMON_TRACE_H

#include "common/log.h"

enum trace {
#define TRACE(name, text) name,
#include "common/trace_table.h"
#undef TRACE
	TRACE_COUNT
};

extern unsigned trace_set; /* a bit for each name that is on; read only */

/*
 * Switches on the names in the list, separated by commas, or "all"; 0, or -1 at a name that is
 * none. Before threads start.
 */
int trace_init(const char *names);

/* `number` identifies the thing among its kind: a tag, a coupon. */
void trace_write(enum trace trace, int64_t number, const char *from, const char *to);

static inline void trace_state(enum trace trace, int64_t number, const char *from, const char *to)
{
	if (trace_set & 1u << trace)
		trace_write(trace, number, from, to);
}

#endif
