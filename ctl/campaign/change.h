/*
 * A change of a coupon's terms, by publish, pause, resume, close, stock and edit. PostgreSQL has
 * the authoritative terms; Redis gets them from lua/terms.lua, which accepts only a higher version.
 * The row of the coupon is locked, so two changes have the same order in both stores.
 *
 *	change_begin()   refuse if PostgreSQL is behind Redis
 *	                 BEGIN, lock the row, read the coupon in Redis
 *	change_needed()  refuse if --version is another one
 *	  …              the caller's statements on change->db
 *	change_commit()  COMMIT, update Redis
 */
#pragma once

#include "common/clock.h"
#include "coupon/redis_coupon.h"
#include "ctl/store.h"
#include "ctl/times.h"

#define CHANGE_OPTIONS                                                                          \
	OPTION("version", "V",                                                                  \
	       "refuse unless the coupon's terms have this version, as couponctl show prints"), \
		BY_OPTION

struct terms {
	int64_t version;
	const char *status;                     /* of PostgreSQL: published, paused or closed */
	int64_t total, begin_ms, end_ms, limit; /* 0 ms: no bound */
};

struct change {
	const struct ctl *ctl;
	const struct args *args;
	int is_keyed; /* --key is taken: change_commit() records what is printed */
	int64_t coupon;
	struct db *db;
	struct redis_client *redis;
	/*
	 * 1: Redis has the coupon, as in_redis; 0: it does not have it; -1: it cannot be read, for
	 * the reason of redis_client_error()
	 */
	int loaded;
	struct redis_coupon in_redis;

	/* The row as it is under the lock. */
	char status[16];
	int64_t issued_num;
	struct terms terms; /* terms.status is `status`; terms.end_ms is when issuing ends */
	int64_t end_ms, valid_to_ms; /* of the campaign and of its validity; 0: none */
	int64_t now_ms;              /* PostgreSQL's clock under the lock */
	char zone[ZONE_SIZE];        /* of the campaign */
	char begin[CLOCK_RFC3339_SIZE], end[CLOCK_RFC3339_SIZE]; /* in it; "": none */
};

/* For the coupon on the command line. Ends the process when it does not exist. */
void change_begin(struct change *change, struct ctl *ctl);

/*
 * To be called once it is known that something differs from what is wanted: ends the process with
 * CTL_OTHER_VERSION when --version names another version than the row has.
 */
void change_needed(struct change *change);

/*
 * Gives Redis lower terms before the COMMIT, because Redis has the taken slots, under the version
 * that the caller's statement has counted. Returns their number when that is too many: nothing is
 * changed then. -1: done, or the coupon is a draft, which Redis does not have. Ends the process
 * when Redis cannot answer.
 */
int64_t change_lower(struct change *change, struct terms *lower);

/* Raises the version in PostgreSQL above that of Redis, which has other terms. */
void change_version_raise(struct change *change);

/* Returns the exit status: 0, or CTL_NOT_IN_REDIS after a warning. change_fini() follows. */
int change_commit(struct change *change);

/* Prints the coupon as it is now, by the template or with --json. change_fini() follows. */
void change_say(struct change *change, const char *template);

void change_fini(struct change *change);
