/*
 * One lock in Redis, over a connection of the caller, which renews it by itself: for a caller that
 * writes over that connection, and whose lease has to end when it hangs. It is a lock of
 * LOCK_REDIS: it excludes the locks of that name, and they exclude it. One thread.
 */
#pragma once

#include "common/message/number.h"
#include "common/message/receive.h"
#include "common/redis/redis_client.h"
#include "lock/backend.h"

struct redis_lease {
	struct redis_client *client;
	int is_reconnecting;
	int64_t fence;
	int64_t until_ms; /* by Redis' clock; of the last grant or renewal; 0: none */
	char session[ULID_SIZE];
	int64_t grants; /* each has a token of its own, so that a late command finds nothing */
	char token[ULID_SIZE + NUMBER_SIZE];
	char name[sizeof("couponmq:lock:{}") + LOCK_NAME_MAX];
	char queue[sizeof(":queue") + sizeof("couponmq:lock:{}") + LOCK_NAME_MAX];
	char seen[sizeof(":seen") + sizeof("couponmq:lock:{}") + LOCK_NAME_MAX];
	const char *kind;
	char lease[NUMBER_SIZE];
};

/*
 * The client is lent. Reconnecting: a connection that was lost since its last use is replaced;
 * otherwise the caller connects.
 */
void redis_lease_init(struct redis_lease *lease, struct redis_client *client, int is_reconnecting);
/* A new request, with a token of its own. What was held before is forgotten, not released. */
void redis_lease_begin(struct redis_lease *lease, const struct lock_request *request);
/*
 * Asks once. A caller that does not get the lock waits in the queue for `waiter_ms` (0: not at
 * all); `*left_ms` is then the time until the next lease ends, 0 if none does. After DOWN it may
 * ask again.
 */
enum lock_reply redis_lease_take(struct redis_lease *lease, int64_t waiter_ms, int64_t *left_ms);
/* NO: its lease has ended. */
enum lock_reply redis_lease_renew(struct redis_lease *lease);
/* Gives up the lock, or the place in the queue. NO: it does not have the lock. */
enum lock_reply redis_lease_release(struct redis_lease *lease);

#define REDIS_LEASE_RENEWAL_WRITES 2 /* to Redis, while nobody waits */
