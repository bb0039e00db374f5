/*
 * Findings about single receives, slots and outbox entries. One such fault shows in several counts:
 * a deleted row, for instance, in issued_num, in settled_num and as a slot without an outcome. So
 * the counts are judged later, and only for what these findings do not explain.
 */
#ifndef CTL_AUDIT_RECEIVES_H
#define CTL_AUDIT_RECEIVES_H

#include "ctl/audit/pass.h"

/* By how much the findings change the counts. */
struct explained {
	int64_t both_n; /* receives that are issued and rejected */
	int64_t rows_extra, rows_missing;
	int64_t slots_extra, slots_missing; /* in Redis */
};

/* After the watch. Reports what is wrong and fills `explained`. */
void receives_judge(struct pass *pass, struct explained *explained);
/* Reports the counts that are wrong by more than `explained`. */
void counts_judge(struct pass *pass, const struct explained *explained, enum sum_verdict sum);

#endif
