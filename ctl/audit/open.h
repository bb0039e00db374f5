/* Open slots: those of a pass that are no user coupons of the snapshot. */
#ifndef CTL_AUDIT_OPEN_H
#define CTL_AUDIT_OPEN_H

#include "ctl/audit/pass.h"

/* Sorts the open slots by batch and removes duplicates, which a scan may return. */
void open_sort(struct suspects *open);

/* Reads the outcomes of the open slots. Those that have one are counted and leave the list. */
void open_resolve(struct pass *pass);

#endif
