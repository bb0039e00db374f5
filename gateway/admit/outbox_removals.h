/*
 * Confirmed batches whose entries are to be removed from their outbox. They are gathered until the
 * next write to Redis. Event-loop thread only.
 */
#ifndef GATEWAY_ADMIT_OUTBOX_REMOVALS_H
#define GATEWAY_ADMIT_OUTBOX_REMOVALS_H

#include "common/redis/link.h"
#include "common/message/ulid.h"

struct outbox_removals;

struct outbox_removals *outbox_removals_new(void);
void outbox_removals_free(struct outbox_removals *removals);

void outbox_removals_add(struct outbox_removals *removals, int64_t coupon,
			 const struct ulid *batch);
/*
 * Queues all on `link` and forgets them. With NULL, while Redis is unreachable, it only forgets
 * them: the entries stay, and the keeper sends them again, which is harmless.
 */
void outbox_removals_send(struct outbox_removals *removals, struct redis_link *link);
size_t outbox_removals_n(const struct outbox_removals *removals);

#endif
