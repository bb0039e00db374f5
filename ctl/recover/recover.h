/* What the parts of couponctl recover share. Each ends the process when a store fails. */
#ifndef CTL_RECOVER_RECOVER_H
#define CTL_RECOVER_RECOVER_H

#include "coupon/generation.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/postgres.h"

struct recover {
	struct db *db; /* has the lock */
	struct redis_client *redis;
	int is_dry;   /* everything is done in transactions that are rolled back */
	int gives_up; /* --accept-loss */
	int is_json;
	struct progress progress;
	int64_t users_n, users_done; /* of all coupons in Redis */
	struct recover_counts {
		int64_t coupons, created, changed, deleted, left;
		int64_t receives, receives_there, receives_rejected, receives_lost;
		int64_t rejections, rejections_there;
		int64_t unreadable;
	} counts;
};

/* When batches were accepted, by Redis' clock. All zero at first: 24 bytes for each batch. */
struct times {
	struct time_of {
		struct ulid batch;
		int64_t at_ms;
	} * list;
	size_t n, size;
};

/* A coupon as Redis has it. */
struct recover_coupon {
	struct recover *recover;
	int64_t id;
	int has_hash; /* and it is no placeholder */
	struct redis_coupon hash;
	struct generations generations; /* all of them, if it has the hash */

	int64_t settling; /* the generation in PostgreSQL, of receives to be settled */
	struct times settled, outbox;
	int times_are_read;
	/* Receives without an outcome that will get one from their messages. */
	int64_t own_owed, older_owed;
};

/*
 * In coupons.c. The ids of the coupons that Redis holds, in ascending order, to be freed. Returns
 * how many there are.
 */
size_t coupons_find(struct redis_client *redis, int64_t **ids);
/* Reads one. recover_coupon_fini() follows. */
void recover_coupon_read(struct recover_coupon *coupon, struct recover *recover, int64_t id);
void recover_coupon_fini(struct recover_coupon *coupon);
/*
 * Stops issuing, as the keeper does while PostgreSQL is behind, and removes the expiry of a coupon
 * that is over: nothing of it may vanish meanwhile.
 */
void recover_coupon_hold(const struct recover_coupon *coupon);
/* Removes all keys. */
void recover_coupon_delete(const struct recover_coupon *coupon);
/* The number of its users. */
int64_t recover_coupon_users(const struct recover_coupon *coupon);
/* Creates the coupon in PostgreSQL, or gives it the terms that Redis has if they are newer. */
void terms_restore(struct recover_coupon *coupon);
/* Raises the version in PostgreSQL above that of Redis, where PostgreSQL's terms then apply. */
void terms_keep(struct recover_coupon *coupon);

/*
 * In receives.c. Records in PostgreSQL the rejected receives that Redis has: they must never be
 * issued. One that still holds its slot in Redis is left for the keeper to release.
 */
void rejected_restore(struct recover_coupon *coupon);
/*
 * Settles every receive of the coupon that PostgreSQL has no outcome for, as a worker does, and
 * names those that are rejected.
 */
void receives_settle(struct recover_coupon *coupon);
/*
 * Names each receive of the coupon without an outcome whose message is gone, and records it as
 * lost. Counts the others that have no outcome as owed.
 */
void receives_give_up(struct recover_coupon *coupon);
/* Names every receive of a coupon that PostgreSQL does not have. Their messages are rejected. */
void receives_name(struct recover_coupon *coupon);

/* In recover.c. Prints a line. `what` is a constant such as "created"; `detail` may be NULL. */
void report_coupon(struct recover *recover, const char *what, int64_t coupon, const char *detail);
/* A receive that is lost, or rejected with this reason. */
void report_receive(struct recover *recover, const char *what, int64_t coupon,
		    const struct slot *slot, const char *reason);

#endif
