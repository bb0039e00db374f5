#include "keeper/resend.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN (-1)

/* The place of a receive in the order in which a coupon's receives were accepted. */
struct receive_place {
	int64_t generation;
	int64_t seq;
};

struct resend_entry {
	int64_t coupon;
	struct receive_place mark;    /* the highest receive that was settled, at `mark_ms` */
	struct receive_place settled; /* the mark before: settled for long */
	struct receive_place
		passed;      /* accepted when the last pass that published something ended */
	int64_t mark_ms;     /* 0: no mark yet */
	int64_t due_ms;      /* the next pass */
	int64_t ended_ms;    /* the last pass; 0: none, or there was a new connection */
	int64_t pause_ms;    /* 0: none so far */
	int64_t seen_n;      /* settled at the last look */
	int64_t progress_ms; /* when that grew; 0: it never did */
	int64_t settled_n;   /* at that last pass */
	int64_t outbox_n;    /* at that last pass */
	int64_t empty_ms;    /* since when it has no messages; 0: it has some */
	struct resend_pass pass;
	UT_hash_handle hh;
};

struct resend {
	int64_t after_ms;
	int64_t ready[RESEND_QUEUES]; /* UNKNOWN at first */
	int64_t empty_since_ms;       /* of the receive queue; 0: it is not empty, or unknown */
	struct resend_entry *entries;
};

static void queues_forget(struct resend *resend)
{
	resend->empty_since_ms = 0;
	for (int i = 0; i < RESEND_QUEUES; i++)
		resend->ready[i] = UNKNOWN;
}

struct resend *resend_new(int64_t after_ms)
{
	struct resend *resend = checked(calloc(1, sizeof(*resend)));

	resend->after_ms = after_ms;
	queues_forget(resend);
	return resend;
}

void resend_free(struct resend *resend)
{
	if (!resend)
		return;
	resend_reset(resend);
	free(resend);
}

static void entry_free(struct resend *resend, struct resend_entry *entry)
{
	HASH_DEL(resend->entries, entry);
	free(entry);
}

void resend_reset(struct resend *resend)
{
	struct resend_entry *entry, *next;

	HASH_ITER (hh, resend->entries, entry, next)
		entry_free(resend, entry);
	queues_forget(resend);
}

void resend_connected(struct resend *resend)
{
	struct resend_entry *entry, *next;

	queues_forget(resend);
	HASH_ITER (hh, resend->entries, entry, next) {
		entry->due_ms = 0;
		entry->ended_ms = 0;
		entry->pause_ms = 0;
	}
}

void resend_ready(struct resend *resend, enum resend_queue queue, int64_t ready, int64_t now_ms)
{
	resend->ready[queue] = ready;
	if (queue != RESEND_RECEIVES)
		return;
	if (ready > 0)
		resend->empty_since_ms = 0;
	else if (resend->empty_since_ms == 0)
		resend->empty_since_ms = now_ms;
}

static struct resend_entry *entry_of(struct resend *resend, const struct resend_coupon *coupon)
{
	struct resend_entry *entry;

	HASH_FIND(hh, resend->entries, &coupon->id, sizeof(coupon->id), entry);
	if (entry)
		return entry;
	if (HASH_COUNT(resend->entries) >= RESEND_COUPONS_MAX)
		entry_free(resend, resend->entries);
	entry = checked(calloc(1, sizeof(*entry)));
	entry->coupon = coupon->id;
	entry->seen_n = coupon->settled;
	HASH_ADD(hh, resend->entries, coupon, sizeof(entry->coupon), entry);
	return entry;
}

void resend_forget(struct resend *resend, int64_t coupon)
{
	struct resend_entry *entry;

	HASH_FIND(hh, resend->entries, &coupon, sizeof(coupon), entry);
	if (entry)
		entry_free(resend, entry);
}

static int is_before(const struct receive_place *a, const struct receive_place *b)
{
	return a->generation < b->generation || (a->generation == b->generation && a->seq < b->seq);
}

static int has_progressed(const struct resend_entry *entry, const struct resend_coupon *coupon)
{
	return coupon->settled != entry->settled_n || coupon->outbox_n < entry->outbox_n;
}

static int queue_is_empty(const struct resend *resend, int64_t now_ms)
{
	return resend->empty_since_ms && now_ms - resend->empty_since_ms >= resend->after_ms;
}

static struct resend_pass *pass_begin(struct resend_entry *entry, enum resend_kind kind,
				      const struct resend_coupon *coupon)
{
	entry->pass = (struct resend_pass){ .is_running = 1,
					    .kind = kind,
					    .generation = entry->settled.generation,
					    .seq = entry->settled.seq,
					    .outbox_n = coupon->outbox_n,
					    .cursor = "0" };
	return &entry->pass;
}

struct resend_pass *resend_look(struct resend *resend, const struct resend_coupon *coupon,
				int64_t now_ms)
{
	struct resend_entry *entry = entry_of(resend, coupon);
	const struct resend_pass *last = &entry->pass;
	int64_t rest_ms;

	if (coupon->settled != entry->seen_n)
		entry->progress_ms = now_ms;
	entry->seen_n = coupon->settled;
	if (coupon->outbox_n > 0)
		entry->empty_ms = 0;
	else if (entry->empty_ms == 0)
		entry->empty_ms = now_ms;

	/* The mark moves once an interval. The mark before it counts as settled long ago. */
	if (!entry->mark_ms || now_ms - entry->mark_ms >= 2 * resend->after_ms) {
		if (entry->mark_ms)
			entry->settled = entry->mark;
		entry->mark = (struct receive_place){ coupon->generation, coupon->seq_seen };
		entry->mark_ms = now_ms;
	}
	if (entry->pass.is_running)
		return &entry->pass;

	/* When settling goes on again, a long pause is cut. */
	if (entry->pause_ms > resend->after_ms && has_progressed(entry, coupon)) {
		entry->pause_ms = resend->after_ms;
		if (entry->due_ms > now_ms + entry->pause_ms)
			entry->due_ms = now_ms + entry->pause_ms;
	}
	if (now_ms < entry->due_ms)
		return NULL;

	/*
	 * No pass takes more than its share of the keeper's time. It takes as long as the last one
	 * for as many messages.
	 */
	rest_ms = last->work_ms * RESEND_WORK_SHARE;
	if (coupon->outbox_n < last->outbox_n)
		rest_ms = rest_ms * coupon->outbox_n / last->outbox_n;
	if (rest_ms > RESEND_PAUSE_LONGEST_MS)
		rest_ms = RESEND_PAUSE_LONGEST_MS;
	if (entry->ended_ms && now_ms < entry->ended_ms + rest_ms)
		return NULL;

	/* The third sign: receives without a message have been in flight for long. */
	if (entry->empty_ms && now_ms - entry->empty_ms >= RESEND_SLOTS_MS &&
	    now_ms - entry->progress_ms >= RESEND_SLOTS_MS && queue_is_empty(resend, now_ms) &&
	    resend->ready[RESEND_PARKED] == 0 && resend->ready[RESEND_DEAD] == 0)
		return pass_begin(entry, RESEND_SLOTS, coupon);
	if (coupon->outbox_n == 0)
		return NULL;
	/* Unless the workers hold its messages, and settle them slowly. */
	if (queue_is_empty(resend, now_ms) &&
	    (!entry->progress_ms || now_ms - entry->progress_ms >= resend->after_ms))
		return pass_begin(entry, RESEND_ALL, coupon);
	/* Receives may have been overtaken, and no copies of them are on their way. */
	return entry->settled.seq > 0 && !is_before(&entry->settled, &entry->passed)
		       ? pass_begin(entry, RESEND_OVERTAKEN, coupon)
		       : NULL;
}

int resend_covers(const struct resend *resend, const struct resend_pass *pass, int64_t generation,
		  int64_t seq, int64_t age_ms)
{
	const struct receive_place place = { generation, seq },
				   last = { pass->generation, pass->seq };

	if (age_ms >= -resend->after_ms && age_ms <= resend->after_ms)
		return 0;
	return pass->kind == RESEND_ALL || !is_before(&last, &place);
}

void resend_pass_end(struct resend *resend, const struct resend_coupon *coupon, int64_t now_ms)
{
	struct resend_entry *entry = entry_of(resend, coupon);

	/* The pause doubles while nothing is settled. */
	if (entry->pass.sent == 0)
		entry->pause_ms = 0;
	else if (entry->pause_ms == 0 || has_progressed(entry, coupon))
		entry->pause_ms = resend->after_ms;
	else if (entry->pause_ms < RESEND_PAUSE_LONGEST_MS / 2)
		entry->pause_ms *= 2;
	else
		entry->pause_ms = RESEND_PAUSE_LONGEST_MS;
	if (entry->pass.sent > 0) {
		entry->settled_n = coupon->settled;
		entry->outbox_n = coupon->outbox_n;
		entry->passed = (struct receive_place){ coupon->generation, coupon->seq };
	}
	entry->due_ms = now_ms + (entry->pause_ms ? entry->pause_ms : resend->after_ms);
	entry->ended_ms = now_ms;
	entry->pass.is_running = 0;
}
