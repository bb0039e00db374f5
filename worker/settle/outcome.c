#include "worker/settle/outcome.h"

#include <string.h>

static const char *const reasons[REASON_COUNT] = {
	[REASON_NONE] = "",
#define REASON(name, text) [REASON_##name] = text,
#include "common/reason_table.h"
#undef REASON
};

int outcome_parse(const char *kind, const char *reason, struct outcome *outcome)
{
	*outcome = (struct outcome){ OUTCOME_REPEATED, REASON_NONE };
	if (strcmp(kind, "repeated") == 0)
		return 0;
	if (strcmp(kind, "rejected") != 0)
		return -1;
	outcome->kind = OUTCOME_REJECTED;
	for (unsigned char i = REASON_NONE + 1; i < REASON_COUNT; i++) {
		if (reason && strcmp(reasons[i], reason) == 0) {
			outcome->reason = i;
			return 0;
		}
	}
	return -1;
}

const char *outcome_reason_text(const struct outcome *outcome)
{
	return reasons[outcome->reason];
}
