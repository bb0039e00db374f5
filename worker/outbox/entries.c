#include "worker/outbox/entries.h"

#include "common/check.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "worker/metrics.h"

#include <stdio.h>
#include <stdlib.h>

void entries_init(struct entries *entries)
{
	STAILQ_INIT(&entries->head);
	entries->size = 0;
}

static void append(struct entries *entries, struct entry *entry)
{
	STAILQ_INSERT_TAIL(&entries->head, entry, next);
	entries->size += 1 + entry->rejected_n;
}

static struct entry *take(struct entries *entries)
{
	struct entry *entry = STAILQ_FIRST(&entries->head);

	STAILQ_REMOVE_HEAD(&entries->head, next);
	entries->size -= 1 + entry->rejected_n;
	return entry;
}

struct entry *entries_add(struct entries *entries, int64_t coupon, const struct ulid *batch)
{
	struct entry *entry = checked(calloc(1, sizeof(*entry)));

	entry->coupon = coupon;
	entry->batch = *batch;
	append(entries, entry);
	return entry;
}

void entries_add_rejected(struct entries *entries, struct entry *entry, size_t index, int slot,
			  const char *reason, const struct user_id *user)
{
	char batch[ULID_SIZE], **text;

	entry->rejected = checked(
		realloc(entry->rejected, (entry->rejected_n + 1) * sizeof(*text)));
	text = &entry->rejected[entry->rejected_n++];
	entries->size++;
	check(asprintf(text, "%s:%zu:%d:%s:%s", ulid_format(&entry->batch, batch), index, slot,
		       reason, user->text) > 0);
}

void entries_join(struct entries *entries, struct entries *other)
{
	STAILQ_CONCAT(&entries->head, &other->head);
	entries->size += other->size;
	other->size = 0;
}

struct group {
	int64_t coupon;
	struct entry *last;
	UT_hash_handle hh;
};

void entries_group(struct entries *entries)
{
	struct group *groups = NULL, *group, *next;
	struct entries grouped = { .size = entries->size };
	struct entry *entry;

	STAILQ_INIT(&grouped.head);
	while ((entry = STAILQ_FIRST(&entries->head))) {
		STAILQ_REMOVE_HEAD(&entries->head, next);
		HASH_FIND(hh, groups, &entry->coupon, sizeof(group->coupon), group);
		if (group) {
			STAILQ_INSERT_AFTER(&grouped.head, group->last, entry, next);
		} else {
			group = checked(calloc(1, sizeof(*group)));
			group->coupon = entry->coupon;
			HASH_ADD(hh, groups, coupon, sizeof(group->coupon), group);
			STAILQ_INSERT_TAIL(&grouped.head, entry, next);
		}
		group->last = entry;
	}
	entries->size = 0;
	entries_join(entries, &grouped);
	HASH_ITER (hh, groups, group, next) {
		HASH_DEL(groups, group);
		free(group);
	}
}

void entries_rotate(struct entries *entries, size_t n)
{
	for (; n > 0; n--)
		append(entries, take(entries));
}

void entries_free(struct entries *entries, size_t n)
{
	for (; n > 0; n--) {
		struct entry *entry = take(entries);

		for (size_t i = 0; i < entry->rejected_n; i++)
			free(entry->rejected[i]);
		free(entry->rejected);
		free(entry);
	}
}

void entries_forget(struct entries *entries, size_t n, const char *why)
{
	entries_free(entries, n);
	metrics_count(METRIC_OUTBOX_FORGOTTEN, (int64_t)n);
	log_warn("outbox_forgotten", LOG_I("batches", n), LOG_S("why", why));
}

void entries_forget_all(struct entries *entries, const char *why)
{
	const struct entry *entry;
	size_t n = 0;

	STAILQ_FOREACH (entry, &entries->head, next) {
		n++;
	}
	if (n > 0)
		entries_forget(entries, n, why);
}
