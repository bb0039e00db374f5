#include "keeper/watch.h"

#include "common/log/log.h"

#include <string.h>

void keeper_watch_begin(struct keeper_watch *watch)
{
	watch->sweep++;
	watch->sums = (struct watch_sums){ 0 };
}

int keeper_watch_equal(const struct coupon_row *row, const struct coupon_look *look, int64_t known)
{
	return look->total - look->stock - look->reserved - look->lost - look->seq ==
	       row->issued - row->settled + known;
}

/* Whether the coupon is verified, in the generation that PostgreSQL has. */
static int usable(const struct keeper_context *context, const struct coupon_row *row,
		  const struct coupon_look *look)
{
	return look->present && !look->broken && look->generation == row->generation &&
	       strcmp(look->run_id, context->run_id) == 0;
}

static enum coupon_stand stand_of(const struct coupon_row *row, int is_usable, int64_t now_ms)
{
	if (row->status == COUPON_CLOSED)
		return STAND_CLOSED;
	if (!is_usable)
		return STAND_UNAVAILABLE;
	if (row->status == COUPON_PAUSED)
		return STAND_PAUSED;
	return now_ms < row->begin_ms ? STAND_NOT_STARTED : STAND_OPEN;
}

/* The entry of a coupon, or NULL when another suspect of this sweep or the last one uses it. */
static struct watch_suspect *suspect_find(struct keeper_watch *watch, int64_t coupon)
{
	struct watch_suspect *suspect = &watch->suspects[coupon % WATCH_SUSPECTS];

	if (suspect->coupon != coupon && suspect->sweep >= watch->sweep - 1)
		return NULL;
	if (suspect->coupon != coupon || suspect->sweep < watch->sweep - 1)
		*suspect = (struct watch_suspect){ .coupon = coupon };
	return suspect;
}

static void suspect_add(struct keeper_watch *watch, const struct coupon_row *row,
			const struct coupon_look *look, int64_t known)
{
	struct watch_suspect *suspect = suspect_find(watch, row->id);

	if (!suspect)
		return;
	suspect->sweep = watch->sweep;
	if (suspect->looks < WATCH_LOOKS && ++suspect->looks == WATCH_LOOKS)
		log_error("coupon_unequal", LOG_I("coupon", row->id), LOG_I("total", look->total),
			  LOG_I("stock", look->stock), LOG_I("reserved", look->reserved),
			  LOG_I("lost", look->lost), LOG_I("seq", look->seq),
			  LOG_I("issued", row->issued), LOG_I("settled", row->settled),
			  LOG_I("known", known));
	watch->sums.unequal += suspect->looks == WATCH_LOOKS;
}

/*
 * While a release or a late outcome is pending, the numbers are not compared: Redis has not counted
 * it yet.
 */
static int numbers_compare(struct keeper_watch *watch, struct keeper_context *context,
			   const struct coupon_row *row, const struct coupon_look *look)
{
	int64_t known = 0;

	if (row->pending || row->late || keeper_watch_equal(row, look, 0))
		return 0;
	if (look_known(context->redis, row->id, &known))
		return redis_client_is_open(context->redis) ? 0 : -1;
	if (!keeper_watch_equal(row, look, known))
		suspect_add(watch, row, look, known);
	return 0;
}

int keeper_watch_add(struct keeper_watch *watch, struct keeper_context *context,
		     const struct coupon_row *row, const struct coupon_look *look, int64_t now_ms)
{
	int is_usable = usable(context, row, look);

	watch->sums.stands[stand_of(row, is_usable, now_ms)]++;
	watch->sums.unreleased += row->pending;
	watch->sums.outbox += look->outbox_n;
	if (!is_usable)
		return 0;
	/*
	 * PostgreSQL was read first: receives that were settled since then count as in flight until
	 * the next sweep.
	 */
	if (look->seq > row->settled)
		watch->sums.in_flight += look->seq - row->settled;
	watch->sums.in_flight += look->reserved;
	watch->sums.reserved += look->reserved;
	watch->sums.lost += look->lost;
	return numbers_compare(watch, context, row, look);
}

static void sums_publish(const struct watch_sums *sums)
{
	keeper_metrics_coupons(sums->stands);
	keeper_metrics_set(KEEPER_METRIC_UNEQUAL, sums->unequal);
	keeper_metrics_set(KEEPER_METRIC_IN_FLIGHT, sums->in_flight);
	keeper_metrics_set(KEEPER_METRIC_RESERVED, sums->reserved);
	keeper_metrics_set(KEEPER_METRIC_UNRELEASED, sums->unreleased);
	keeper_metrics_set(KEEPER_METRIC_LOST, sums->lost);
	keeper_metrics_set(KEEPER_METRIC_OUTBOX, sums->outbox);
}

void keeper_watch_end(const struct keeper_watch *watch)
{
	sums_publish(&watch->sums);
}

void keeper_watch_none(void)
{
	static const struct watch_sums none;

	sums_publish(&none);
	keeper_metrics_set(KEEPER_METRIC_OUTBOX_AGE, 0);
}
