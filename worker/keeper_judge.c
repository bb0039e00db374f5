#include "worker/keeper_judge.h"

#include <string.h>

/* Whether anything is known to have come of the generation that PostgreSQL gave out last. */
static int row_untouched(const struct coupon_row *row)
{
	return row->issued == 0 && row->seq_seen == 0 && row->settled == 0;
}

enum coupon_action keeper_judge(const struct coupon_row *row, const struct coupon_cache *cache, const char *run_id)
{
	if (cache->broken)
		return COUPON_KEEP;
	if (!cache->present) {
		if (row->status == COUPON_CLOSED && row->generation == 0)
			return COUPON_KEEP;
		if (cache->users_present || cache->outbox_n > 0)
			return COUPON_MISSING;
		/* A generation without a trace: the keeper may have died between giving it out and loading. */
		return row->generation == 0 || row_untouched(row) ? COUPON_LOAD : COUPON_MISSING;
	}
	if (strcmp(cache->run_id, run_id) != 0)
		return row->generation > 0 ? COUPON_VERIFY : COUPON_FOREIGN;
	if (cache->generation != row->generation)
		return COUPON_FOREIGN;
	if (row->version > cache->version)
		return COUPON_TERMS;
	return COUPON_KEEP;
}

const char *coupon_status_text(enum coupon_status status)
{
	switch (status) {
	case COUPON_OPEN:
		return "open";
	case COUPON_PAUSED:
		return "paused";
	case COUPON_CLOSED:
		return "closed";
	}
	return "closed";
}
