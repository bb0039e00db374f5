/* The outbox of a coupon in Redis: entries that should not be there. */
#ifndef CTL_AUDIT_OUTBOX_H
#define CTL_AUDIT_OUTBOX_H

#include "ctl/audit/context.h"
#include "ctl/audit/suspect.h"

#define OUTBOX_ENTRIES_MAX 1000 /* of each kind that are kept */

/* An entry that no script wrote. */
struct outbox_bad {
	char batch[48];
	const char *error;
};

struct outbox {
	struct outbox_bad *bad; /* NULL: none */
	size_t bad_n;
	/* Entries whose receives all have an outcome, each named by its first receive. */
	struct suspects settled;
};

/*
 * Fills a zeroed `outbox`. Of settled entries only those that are older than `before_ms`. `open`
 * are slots without an outcome, sorted by batch.
 */
void outbox_read(struct outbox *outbox, struct audit *audit, int64_t coupon,
		 const struct suspects *open, int64_t before_ms);
void outbox_fini(struct outbox *outbox);

/* Whether the batch of each slot is in the outbox. Slots of one batch should stand together. */
void outbox_has(struct redis_client *redis, int64_t coupon, const struct slot *slots, size_t n,
		int *has);
/* The same for the batches that are marked as dead-lettered. */
void outbox_dead(struct redis_client *redis, int64_t coupon, const struct slot *slots, size_t n,
		 int *dead);

#endif
