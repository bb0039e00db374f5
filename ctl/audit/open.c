#include "ctl/audit/open.h"

#include <stdlib.h>
#include <string.h>

/* Counts a receive by its time of acceptance. */
static void time_count(struct pass *pass, int64_t accepted_ms)
{
	pass->by_time++;
	if (accepted_ms < pass->cut.at_ms || (accepted_ms == pass->cut.at_ms && pass->cut.exact))
		pass->counted++;
	else if (accepted_ms == pass->cut.at_ms)
		pass->doubtful++;
}

static void suspect_resolve(struct pass *pass, struct suspect *suspect,
			    const struct outcome *outcome)
{
	suspect->state = SUSPECT_NEW;
	if (outcome->issued_ms >= 0) {
		time_count(pass, outcome->issued_ms);
		suspect->state = SUSPECT_GONE;
	} else if (outcome->rejected_ms >= 0 && !outcome->is_released) {
		time_count(pass, outcome->rejected_ms);
		pass->pending++;
		suspect->state = SUSPECT_GONE;
	} else if (outcome->rejected_ms >= 0) {
		suspect->state = SUSPECT_HELD;
	}
}

/* By batch: then outbox_has() sends one command a batch. */
static int compare(const void *a, const void *b)
{
	const struct suspect *one = a, *other = b;
	int order = memcmp(&one->slot.batch, &other->slot.batch, sizeof(one->slot.batch));

	return order ? order : slot_compare(&one->slot, &other->slot);
}

void open_sort(struct suspects *open)
{
	size_t kept = 0;

	if (open->n > 1)
		qsort(open->list, open->n, sizeof(*open->list), compare);
	for (size_t i = 0; i < open->n; i++)
		if (kept == 0 || compare(&open->list[kept - 1], &open->list[i]) != 0 ||
		    !slot_same_receive(&open->list[kept - 1].slot, &open->list[i].slot))
			open->list[kept++] = open->list[i];
	open->n = kept;
}

void open_resolve(struct pass *pass)
{
	static struct outcome outcomes[AUDIT_ASK_MAX];
	static struct slot slots[AUDIT_ASK_MAX];
	struct suspects *open = &pass->open;
	size_t kept = 0;

	for (size_t at = 0, n; at < open->n; at += n) {
		n = suspects_slots(open, at, AUDIT_ASK_MAX, slots);
		audit_outcomes_read(pass->audit->db, pass->coupon, slots, n, outcomes);
		for (size_t i = 0; i < n; i++) {
			struct suspect *suspect = &open->list[at + i];
			enum suspect_state before = suspect->state;

			suspect_resolve(pass, suspect, &outcomes[i]);
			if (suspect->state == SUSPECT_GONE)
				continue;
			if (suspect->state == SUSPECT_NEW && before != SUSPECT_HELD)
				suspect->state = before;
			if (suspect->state != before)
				suspect->looks = 0;
			open->list[kept++] = *suspect;
		}
	}
	open->n = kept;
}
