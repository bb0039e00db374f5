/*
 * Which listed users have their coupon already, by PostgreSQL: a run that was killed, or whose
 * state file is lost, need not ask the gateway for each of them.
 */
#ifndef CTL_DISTRIBUTE_ISSUED_H
#define CTL_DISTRIBUTE_ISSUED_H

#include "ctl/distribute/book.h"
#include "ctl/postgres.h"

/* Ends them in the book. `name` is that of the distribution. Returns how many there were. */
int64_t issued_read(struct book *book, struct db *db, int64_t coupon, const char *name);

#endif
