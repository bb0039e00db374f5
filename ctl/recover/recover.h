/* What the files of couponctl recover share. Each function ends the process when a store fails. */
#pragma once

#include "common/changes.h"
#include "coupon/redis_coupon.h"
#include "common/log/log.h"
#include "ctl/output.h"
#include "ctl/database.h"

/* What the last line tells, in this order. */
#define RECOVER_COUNTS           \
	COUNT(coupons)           \
	COUNT(created)           \
	COUNT(changed)           \
	COUNT(deleted)           \
	COUNT(left)              \
	COUNT(receives)          \
	COUNT(receives_there)    \
	COUNT(receives_rejected) \
	COUNT(receives_lost)     \
	COUNT(rejections)        \
	COUNT(rejections_there)  \
	COUNT(uses)              \
	COUNT(uses_lost)         \
	COUNT(keys_created)      \
	COUNT(keys_changed)      \
	COUNT(keys_revoked)      \
	COUNT(keys_told)         \
	COUNT(unreadable)

struct recover {
	struct db *db; /* has the lock */
	struct redis_client *redis;
	int is_dry;       /* everything is done in transactions that are rolled back */
	int gives_up;     /* --accept-loss */
	int64_t tail_max; /* --tail; 0: not given */
	int is_json;
	struct changes changes, copy; /* at the beginning */
	struct progress progress;
	int64_t *ids; /* of the coupons that Redis holds, ascending */
	size_t ids_n, ids_size;
	int64_t users_n, users_done; /* of all these coupons */
	struct recover_counts {
#define COUNT(name) int64_t name;
		RECOVER_COUNTS
#undef COUNT
	} counts;
};

/* With --tail: an operator has to decide. */
#define TAIL_REFUSE(...) (log_fatal_status(CTL_NO_TAIL), log_fatal(__VA_ARGS__))

/* When batches were accepted, by Redis' clock. All zero at first: 24 bytes for each batch. */
struct times {
	struct time_of {
		struct ulid batch;
		int64_t at_ms;
	} * list;
	size_t n, size;
};

/* A coupon as Redis has it. */
struct recover_coupon;
typedef void slots_fn(struct recover_coupon *coupon, struct slot *list, size_t n);

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
	/* While users are read: the slots of some. Parts of them are taken, and reordered. */
	struct slots slots;
	slots_fn *take;
};

/*
 * In recover_receives.c. Records in PostgreSQL the rejected receives that Redis has: they must
 * never be issued. One that still holds its slot in Redis is left for the keeper to release.
 */
void rejected_restore(struct recover_coupon *coupon);
/*
 * Settles every receive of the coupon that PostgreSQL has no outcome for, as a worker does, and
 * names those that are rejected. With --accept-loss: names each of them whose message is gone, and
 * records it as lost; counts the others as owed.
 */
void receives_restore(struct recover_coupon *coupon);
/* Names every receive of a coupon that PostgreSQL does not have. Their messages are rejected. */
void receives_name(struct recover_coupon *coupon);

/*
 * In recover_keys.c. Takes back what PostgreSQL has lost of API keys, in a transaction of its own,
 * and names them. Returns whether it had lost any change of them. With --tail none may be lost.
 */
int recover_keys(struct recover *recover);

/*
 * In recover_receives.c, too. From here on Redis takes nothing more of what was committed before
 * this server was started.
 */
void recover_uses_begin(struct recover *recover);
/*
 * Brings back what orders have done with receives, when these are back. With --accept-loss: counts
 * what is lost of it, and removes it in Redis.
 */
void recover_uses(struct recover *recover);

/* In cmd_recover.c. Prints a line. `what` is a constant such as "created"; `detail` may be NULL. */
void report_coupon(struct recover *recover, const char *what, int64_t coupon, const char *detail);
