/* Lists of batches that have come to their end. A malloc() that fails ends the process. */
#ifndef WORKER_OUTBOX_ENTRIES_H
#define WORKER_OUTBOX_ENTRIES_H

#include "common/message/receive.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct entry {
	STAILQ_ENTRY(entry) next;
	int64_t coupon;
	struct ulid batch;
	/* of a settled one: */
	int64_t at_ms;
	char **rejected; /* 'BATCH:INDEX:SLOT:REASON:USER' */
	size_t rejected_n;
};

STAILQ_HEAD(entry_head, entry);

struct entries {
	struct entry_head head;
	size_t size; /* entries and their rejected receives; 0: it is empty */
};

void entries_init(struct entries *entries);
struct entry *entries_add(struct entries *entries, int64_t coupon, const struct ulid *batch);
/* To one that is in the list. */
void entries_add_rejected(struct entries *entries, struct entry *entry, size_t index, int slot,
			  const char *reason, const struct user_id *user);
/* Brings the entries of each coupon together, in their order. */
void entries_group(struct entries *entries);
/* Appends a list, which is empty afterwards. */
void entries_join(struct entries *entries, struct entries *other);
/* Moves the first `n` to the end. */
void entries_rotate(struct entries *entries, size_t n);
/* The first `n`. */
void entries_free(struct entries *entries, size_t n);
/* The same, which is logged and counted. */
void entries_forget(struct entries *entries, size_t n, const char *why);
void entries_forget_all(struct entries *entries, const char *why);

#endif
