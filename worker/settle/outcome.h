/*
 * How a receive ended, in the words of settle(): one list for the reply, the counters and the
 * parsing.
 */
#ifndef WORKER_SETTLE_OUTCOME_H
#define WORKER_SETTLE_OUTCOME_H

enum outcome_kind { OUTCOME_ISSUED, OUTCOME_REPEATED, OUTCOME_REJECTED };

enum outcome_reason {
	REASON_NONE,
#define REASON(name, text) REASON_##name,
#include "common/reason_table.h"
#undef REASON
	REASON_COUNT
};

struct outcome {
	unsigned char kind;   /* enum outcome_kind */
	unsigned char reason; /* enum outcome_reason; REASON_NONE unless rejected */
};

/*
 * 0, or -1 when these are not the words of settle(). `reason` may be NULL or empty when there is
 * none.
 */
int outcome_parse(const char *kind, const char *reason, struct outcome *outcome);
const char *outcome_reason_text(const struct outcome *outcome);

#endif
