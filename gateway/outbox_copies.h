/*
 * Asks Redis which unconfirmed batches it has in the outbox, and writes those again that it has
 * lost (coupon/copies.h). What Redis alone has counts when its replicas have it. Event-loop thread
 * only.
 */
#pragma once

#include "coupon/copies.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/admit/replicas.h"
#include "gateway/presence.h"

struct outbox_copies {
	struct redis_pool *redis;
	struct replicas *replicas;       /* NULL: none are waited for */
	const struct presence *presence; /* whether Redis may be asked and told */
	struct copies *copies;           /* its own */
};

/* The parts are lent. */
struct copies *outbox_copies_new(struct outbox_copies *outbox);
