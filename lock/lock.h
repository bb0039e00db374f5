/*
 * Locks between processes and machines, in Redis, PostgreSQL or ZooKeeper.
 *
 * An owner takes locks by their names. A lock is granted for a lease, and its grant carries a
 * fence: a number that grows with each grant of the name. A lease can end while its owner still
 * works: the process was stopped, the connection was cut, the store lost its data. Then another
 * owner gets the lock, and only the fence keeps them apart: what the lock protects must store the
 * highest fence that it has seen, and refuse a lower one. docs/reference/locks.md tells what each
 * store promises.
 *
 * This header and libcouponlock are installed for other programs, as <couponlock.h>.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCK_NAME_MAX 200 /* bytes of printable ASCII without spaces */
#define LOCK_LEASE_LEAST_MS 100
#define LOCK_LEASE_MOST_MS 86400000

/* ZooKeeper needs a build with WITH_ZOOKEEPER=1. */
enum lock_backend_id { LOCK_REDIS, LOCK_POSTGRES, LOCK_ZOOKEEPER };

/*
 * Fair: in the order of asking. Readers share a lock that no writer has, and do not overtake a
 * writer that waits. Exclusive locks may overtake those who wait.
 */
enum lock_kind { LOCK_EXCLUSIVE, LOCK_FAIR, LOCK_READ, LOCK_WRITE };

#define LOCK_WAIT_FOREVER INT64_MAX

enum lock_result {
	LOCK_TAKEN,
	LOCK_SKIPPED,     /* another owner has it: what the caller would do is not needed, */
	LOCK_FAILED,      /* or could not be done */
	LOCK_UNREACHABLE, /* the store, until the end of the wait; it may have granted the lock */
	LOCK_REFUSED      /* bad arguments or URL, or the store refuses the command */
};

struct lock_options {
	enum lock_kind kind;
	int64_t wait_ms;  /* how long to wait while another owner has it; 0: not at all */
	int skips;        /* then LOCK_SKIPPED, not LOCK_FAILED */
	int64_t lease_ms; /* LOCK_LEASE_LEAST_MS…LOCK_LEASE_MOST_MS */
	int is_watched;   /* threads renew the lease while this process lives; 0: it ends */
};

struct lock_owner;
struct lock;

/*
 * Called once for each lock whose lease has ended too early, by a thread of the library, for one
 * lock at a time. The owner may have released the lock by then. It may call the functions below,
 * except lock_owner_free(), while the owner's thread calls none.
 */
typedef void lock_lost_fn(void *context, const char *name);

/*
 * Does not connect. The URL is lent; `lost` may be NULL. NULL: this build does not have the store.
 * An owner's functions are for one thread.
 */
struct lock_owner *lock_owner_new(enum lock_backend_id backend, const char *url, lock_lost_fn *lost,
				  void *context);
void lock_owner_free(struct lock_owner *owner); /* releases what it holds; NULL is allowed */

/*
 * Takes the lock. An owner that has it gets it again (LOCK_TAKEN, the same object), except that a
 * reader cannot become a writer; it must release it as often. The lock is the owner's until then.
 */
enum lock_result lock_take(struct lock_owner *owner, const char *name,
			   const struct lock_options *options, struct lock **lock);
/* Why the last call returned LOCK_UNREACHABLE or LOCK_REFUSED, or could not release. */
const char *lock_error(const struct lock_owner *owner);

/*
 * Whether the lease lasts, by this machine's clock since it was asked for. It may end right after
 * this call. Any thread.
 */
int lock_is_held(const struct lock *lock);
int64_t lock_fence(const struct lock *lock); /* 1…2^63-1 */

/*
 * 0: released, or released once of several times. -1: the lease had ended before, or the store
 * could not be reached, and the lock is free at its end. Frees the object after the last time.
 */
int lock_release(struct lock *lock);

struct lock_argument {
	const char *name, *value;
};

/*
 * The name of a lock from a template, as "lock:coupon:{coupon}:user:{user}", so that only those
 * wait for each other who contend for the same thing: replaces each {NAME} by the value of that
 * argument. In a value, every byte that is no letter, digit, '-', '.', '_', '~', '|' or '@' becomes
 * %XX, so that two lists of values never make the same name. 0, or -1 with a sentence in `why`: the
 * template is malformed, an argument is missing or not used, or the name is longer than
 * LOCK_NAME_MAX.
 */
#define LOCK_NAME_SIZE (LOCK_NAME_MAX + 1)
#define LOCK_NAME_WHY_SIZE 128
int lock_name_format(char out[LOCK_NAME_SIZE], const char *name_template,
		     const struct lock_argument *arguments, size_t n, char why[LOCK_NAME_WHY_SIZE]);

#ifdef __cplusplus
}
#endif
