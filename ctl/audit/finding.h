/*
 * The findings of an audit, printed as they are found: as lines for people, or as elements of the
 * JSON object that the verdict ends.
 */
#ifndef CTL_AUDIT_FINDING_H
#define CTL_AUDIT_FINDING_H

#include "common/message/receive.h"
#include "coupon/slot.h"
#include "ctl/output.h"

#include <stdint.h>

enum finding {
#define FINDING(name, word, promise, meaning) FINDING_##name,
#include "ctl/audit/finding_table.h"
#undef FINDING
};

struct findings {
	int silent; /* they are only counted */
	int json;
	int begun; /* the start of the JSON object was printed */
	int64_t n;
};

/* `slot` NULL: it is about the coupon; without a number: about its user, if it has one. */
void finding_add(struct findings *findings, enum finding finding, int64_t coupon,
		 const struct slot *slot, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* With JSON: ends the list of findings, adds the members of `rest` to the object and frees it. */
void findings_end(struct findings *findings, cJSON *rest);

#endif
