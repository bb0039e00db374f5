/* The messages in the outbox of a coupon. */
#ifndef CTL_OUTBOX_H
#define CTL_OUTBOX_H

#include "common/message/message.h"
#include "common/redis/client.h"

/* `step` gets each message that can be read, at least once. A failure of Redis ends the process. */
typedef void outbox_fn(void *context, const struct message *message);
void outbox_scan(struct redis_client *redis, int64_t coupon, outbox_fn *step, void *context);

#endif
