/* Reads a coupon in PostgreSQL and in Redis and compares them slot by slot: a pass. */
#ifndef CTL_AUDIT_COMPARE_H
#define CTL_AUDIT_COMPARE_H

#include "ctl/audit/pass.h"

/* Fills `pass`, for pass_fini(). */
void compare_run(struct pass *pass, struct audit *audit, int64_t coupon);
/* Reads the outcomes of the open slots. Those that have one are counted and leave the list. */
void open_resolve(struct pass *pass);

#endif
