/*
 * A change of a coupon's terms. PostgreSQL is where terms are decided; Redis gets them by
 * lua/terms.lua, which takes only a higher version. In between the coupon's row is locked, so that
 * of two changes one comes after the other in both.
 *
 *	change_begin()   BEGIN, the row locked, and what Redis has read
 *	  …              the caller's statements on change->db
 *	change_commit()  COMMIT, and Redis told
 */
#ifndef CTL_COMMAND_CHANGE_H
#define CTL_COMMAND_CHANGE_H

#include "ctl/redis.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"

struct change {
	int64_t coupon;
	struct db *db;
	struct cache *cache; /* NULL: Redis cannot be reached, and cache_error tells why */
	char cache_error[CACHE_ERROR_SIZE];
	/* 1: Redis has the coupon, as in_cache; 0: it has not; -1: it cannot be asked */
	int cached;
	struct cache_coupon in_cache;

	/* The row as it is under the lock. */
	char status[16];
	int64_t issued_num, generation;
	struct terms terms; /* terms.status is `status` */
};

/* For the coupon of the command line; ends the process when there is no such coupon. */
void change_begin(struct change *change, struct ctl *ctl);

/* Lifts the version in PostgreSQL to at least this one. */
void change_version_raise(struct change *change, int64_t version);

/*
 * Returns the exit status: 0, or CTL_NOT_IN_REDIS after a warning. change_fini() is still to be
 * called.
 */
int change_commit(struct change *change);

void change_fini(struct change *change);

#endif
