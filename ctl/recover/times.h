/* When batches of a coupon were accepted, by Redis' clock. */
#ifndef CTL_RECOVER_TIMES_H
#define CTL_RECOVER_TIMES_H

#include "common/message/ulid.h"
#include "common/redis/client.h"

/* All zero at first: 24 bytes for each batch. */
struct times {
	struct time_of {
		struct ulid batch;
		int64_t at_ms;
	} * list;
	size_t n, size;
};

/* Each is called once, and makes the table ready for times_find(). */
void times_read_settled(struct times *times, struct redis_client *redis, int64_t coupon);
void times_read_outbox(struct times *times, struct redis_client *redis, int64_t coupon);
void times_fini(struct times *times);

/* 0 with the time, or -1: the batch is not in it. */
int times_find(const struct times *times, const struct ulid *batch, int64_t *at_ms);

#endif
