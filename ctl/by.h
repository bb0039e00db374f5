/* Who makes a change, for the record in campaign_history. */
#ifndef CTL_BY_H
#define CTL_BY_H

#include "ctl/args.h"
#include "ctl/postgres.h"

#define BY_OPTION                                                        \
	OPTION("by", "NAME",                                             \
	       "who makes this change, for couponctl history; default: " \
	       "the user and the host of the system")

/* For the changes that follow in this session. */
void by_set(struct db *db, const struct args *args);

#endif
