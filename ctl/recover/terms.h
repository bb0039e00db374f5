/* The terms of a coupon. */
#ifndef CTL_RECOVER_TERMS_H
#define CTL_RECOVER_TERMS_H

#include "ctl/recover/context.h"

/* Creates the coupon in PostgreSQL, or gives it the terms that Redis has if they are newer. */
void terms_restore(struct recover_coupon *coupon);

/* Raises the version in PostgreSQL above that of Redis, where PostgreSQL's terms then apply. */
void terms_keep(struct recover_coupon *coupon);

#endif
