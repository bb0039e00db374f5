#include "gateway/admit/unconfirmed.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKING_MAX 16 /* coupons at a time */

struct unconfirmed {
	struct unconfirmed_port port;
	struct coupons waiting; /* coupons with such batches, by the time of the next look */
	struct coupons looking; /* those that Redis is asked for, or is told */
	size_t looking_n;
	int64_t every_ms;
	size_t lost; /* receives of batches that Redis is known to lack */
	char process[REDIS_RUN_ID_SIZE]; /* of Redis, at the last look */
	int64_t process_n;               /* another number: another process */
};

struct unconfirmed *unconfirmed_new(const struct unconfirmed_port *port)
{
	struct unconfirmed *unconfirmed = checked(calloc(1, sizeof(*unconfirmed)));

	unconfirmed->port = *port;
	unconfirmed->every_ms = UNCONFIRMED_LOOK_MS;
	TAILQ_INIT(&unconfirmed->waiting);
	TAILQ_INIT(&unconfirmed->looking);
	return unconfirmed;
}

void unconfirmed_free(struct unconfirmed *unconfirmed)
{
	free(unconfirmed);
}

/* Every change of a batch's copy. */
static void copy_set(struct unconfirmed *unconfirmed, struct batch *batch, enum batch_copy copy)
{
	if (batch->copy != BATCH_THERE)
		unconfirmed->lost -= batch->receives;
	batch->copy = copy;
	if (copy != BATCH_THERE)
		unconfirmed->lost += batch->receives;
}

/* The pause is the same for all, so the list stays in the order of time. */
static void wait_begin(struct unconfirmed *unconfirmed, struct coupon *coupon)
{
	coupon->look_ms = unconfirmed->port.now_ms() + unconfirmed->every_ms;
	coupon->watch = WATCH_WAITS;
	TAILQ_INSERT_TAIL(&unconfirmed->waiting, coupon, next_watched);
}

void unconfirmed_add(struct unconfirmed *unconfirmed, struct coupon *coupon, struct batch *batch)
{
	batch->accepted_ms = unconfirmed->port.now_ms();
	batch->copy = BATCH_THERE;
	batch->filling = batch->process_n = 0;
	TAILQ_INSERT_TAIL(&coupon->batches, batch, next_unconfirmed);
	if (coupon->watch == WATCH_NONE)
		wait_begin(unconfirmed, coupon);
}

void unconfirmed_remove(struct unconfirmed *unconfirmed, struct coupon *coupon, struct batch *batch)
{
	copy_set(unconfirmed, batch, BATCH_THERE);
	TAILQ_REMOVE(&coupon->batches, batch, next_unconfirmed);
	if (!TAILQ_EMPTY(&coupon->batches) || coupon->watch != WATCH_WAITS)
		return;
	TAILQ_REMOVE(&unconfirmed->waiting, coupon, next_watched);
	coupon->watch = WATCH_NONE;
}

void unconfirmed_tick(struct unconfirmed *unconfirmed)
{
	int64_t now_ms = unconfirmed->port.now_ms();
	struct coupon *coupon;

	while (unconfirmed->looking_n < LOOKING_MAX &&
	       (coupon = TAILQ_FIRST(&unconfirmed->waiting)) && coupon->look_ms <= now_ms) {
		TAILQ_REMOVE(&unconfirmed->waiting, coupon, next_watched);
		TAILQ_INSERT_TAIL(&unconfirmed->looking, coupon, next_watched);
		unconfirmed->looking_n++;
		coupon->watch = WATCH_LOOKS;
		coupon->look_again = 0;
		coupon->looked_ms = now_ms;
		unconfirmed->port.look(unconfirmed->port.context, coupon);
	}
}

void unconfirmed_look_soon(struct unconfirmed *unconfirmed, struct coupon *coupon)
{
	coupon->look_again = 1;
	if (coupon->watch != WATCH_WAITS)
		return;
	coupon->look_ms = 0;
	TAILQ_REMOVE(&unconfirmed->waiting, coupon, next_watched);
	TAILQ_INSERT_HEAD(&unconfirmed->waiting, coupon, next_watched);
}

void unconfirmed_look_all(struct unconfirmed *unconfirmed)
{
	struct coupon *coupon;

	TAILQ_FOREACH(coupon, &unconfirmed->waiting, next_watched)
		coupon->look_ms = 0;
	TAILQ_FOREACH(coupon, &unconfirmed->looking, next_watched)
		coupon->look_again = 1;
}

void unconfirmed_hurry(struct unconfirmed *unconfirmed)
{
	unconfirmed->every_ms = UNCONFIRMED_HURRY_MS;
	unconfirmed_look_all(unconfirmed);
}

static void look_end(struct unconfirmed *unconfirmed, struct coupon *coupon)
{
	TAILQ_REMOVE(&unconfirmed->looking, coupon, next_watched);
	unconfirmed->looking_n--;
	coupon->watch = WATCH_NONE;
	if (TAILQ_EMPTY(&coupon->batches))
		return;
	wait_begin(unconfirmed, coupon);
	if (coupon->look_again)
		unconfirmed_look_soon(unconfirmed, coupon);
}

/* Writes the next lost batches again; if there are none, the look ends. */
static void restore_next(struct unconfirmed *unconfirmed, struct coupon *coupon)
{
	struct restore_message messages[RESTORE_MESSAGES_MAX];
	struct batch *batch;
	size_t n = 0, bytes = 0;

	TAILQ_FOREACH(batch, &coupon->batches, next_unconfirmed)
	{
		if (batch->copy != BATCH_LOST)
			continue;
		if (n == RESTORE_MESSAGES_MAX ||
		    (n > 0 && bytes + batch->body_len > RESTORE_BYTES_MAX))
			break;
		copy_set(unconfirmed, batch, BATCH_RESTORING);
		messages[n++] = (struct restore_message){ .batch = batch->ulid,
							  .generation = batch->generation,
							  .seq = batch->seq,
							  .body = batch->body,
							  .body_len = batch->body_len };
		bytes += batch->body_len;
	}
	if (n > 0) {
		unconfirmed->port.restore(unconfirmed->port.context, coupon, messages, n);
		return;
	}
	coupon->there_ms = coupon->looked_ms;
	look_end(unconfirmed, coupon);
}

void unconfirmed_looked(struct unconfirmed *unconfirmed, struct coupon *coupon, const char *run_id,
			const struct restore_look *look)
{
	struct batch *batch;

	if (!look) {
		look_end(unconfirmed, coupon);
		return;
	}
	if (strcmp(unconfirmed->process, run_id) != 0) {
		snprintf(unconfirmed->process, sizeof(unconfirmed->process), "%s", run_id);
		unconfirmed->process_n++;
	}
	coupon->looked_filling = restore_filling(look);
	coupon->looked_process_n = unconfirmed->process_n;
	TAILQ_FOREACH(batch, &coupon->batches, next_unconfirmed)
	{
		if (batch->accepted_ms >= coupon->looked_ms)
			break; /* Redis was asked before it had this one */
		switch (restore_state(look, batch->generation, batch->seq)) {
		case RESTORE_COVERED:
			copy_set(unconfirmed, batch, BATCH_THERE);
			break;
		case RESTORE_ABSENT:
			batch->filling = 0;
			copy_set(unconfirmed, batch, BATCH_LOST);
			break;
		case RESTORE_LOST:
			copy_set(unconfirmed, batch,
				 batch->filling == coupon->looked_filling &&
						 batch->process_n == coupon->looked_process_n
					 ? BATCH_THERE
					 : BATCH_LOST);
			break;
		}
	}
	if (look->is_present)
		restore_next(unconfirmed, coupon);
	else
		look_end(unconfirmed, coupon);
}

void unconfirmed_restored(struct unconfirmed *unconfirmed, struct coupon *coupon,
			  enum restore_result result)
{
	struct batch *batch;

	TAILQ_FOREACH(batch, &coupon->batches, next_unconfirmed)
	{
		if (batch->copy != BATCH_RESTORING)
			continue;
		if (result == RESTORE_DONE) {
			batch->filling = coupon->looked_filling;
			batch->process_n = coupon->looked_process_n;
		}
		copy_set(unconfirmed, batch, result == RESTORE_DONE ? BATCH_THERE : BATCH_LOST);
	}
	if (result == RESTORE_DONE)
		restore_next(unconfirmed, coupon);
	else
		look_end(unconfirmed, coupon);
}

size_t unconfirmed_lost(const struct unconfirmed *unconfirmed)
{
	return unconfirmed->lost;
}

struct unsafe {
	int64_t since_ms;
	size_t receives;
	void (*each)(void *context, const struct batch *batch);
	void *context;
};

static void coupons_add_unsafe(struct unsafe *unsafe, const struct coupons *coupons)
{
	const struct coupon *coupon;
	const struct batch *batch;

	TAILQ_FOREACH(coupon, coupons, next_watched)
	TAILQ_FOREACH(batch, &coupon->batches, next_unconfirmed)
	{
		if (batch->copy == BATCH_THERE && batch->accepted_ms < coupon->there_ms &&
		    coupon->there_ms >= unsafe->since_ms)
			continue;
		unsafe->receives += batch->receives;
		if (unsafe->each)
			unsafe->each(unsafe->context, batch);
	}
}

void unconfirmed_each_unsafe(const struct unconfirmed *unconfirmed, int64_t since_ms,
			     void (*each)(void *context, const struct batch *batch), void *context)
{
	struct unsafe unsafe = { .since_ms = since_ms, .each = each, .context = context };

	coupons_add_unsafe(&unsafe, &unconfirmed->waiting);
	coupons_add_unsafe(&unsafe, &unconfirmed->looking);
}

size_t unconfirmed_unsafe(const struct unconfirmed *unconfirmed, int64_t since_ms)
{
	struct unsafe unsafe = { .since_ms = since_ms };

	coupons_add_unsafe(&unsafe, &unconfirmed->waiting);
	coupons_add_unsafe(&unsafe, &unconfirmed->looking);
	return unsafe.receives;
}
