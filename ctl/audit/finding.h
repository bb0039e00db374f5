/*
 * What an audit finds wrong, told as it is found: lines for people, or elements of the JSON object
 * that the verdict ends.
 */
#ifndef CTL_AUDIT_FINDING_H
#define CTL_AUDIT_FINDING_H

#include "common/ulid.h"
#include "ctl/output.h"

#include <stdint.h>

enum finding {
#define FINDING(name, word, promise, meaning) FINDING_##name,
#include "ctl/audit/finding_table.h"
#undef FINDING
};

/* Where it is, as far as that exists. */
struct place {
	int64_t coupon;
	int64_t user;             /* 0: none */
	int slot;                 /* 0: none */
	const struct ulid *batch; /* NULL: no receive */
	int index;
};

struct findings {
	int json;
	int begun; /* the object's first bytes were printed */
	int64_t n;
};

void finding_add(struct findings *findings, enum finding finding, const struct place *place,
		 const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * Closes the list of what is wrong and opens the object to the members of `rest`, which is freed.
 * Only with JSON.
 */
void findings_end(struct findings *findings, cJSON *rest);

#endif
