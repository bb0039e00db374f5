#include "keeper/judge.h"

#include <string.h>

static int rebuild_is_due(const struct coupon_row *row)
{
	return row->rebuild_asked > row->rebuild_done;
}

static enum coupon_action absent_judge(const struct coupon_row *row, const struct coupon_look *look)
{
	if (row->generation > 0 || row->issued > 0 || look->users_present || look->outbox_n > 0)
		return COUPON_REBUILD;
	return row->status == COUPON_CLOSED ? COUPON_KEEP : COUPON_LOAD;
}

enum coupon_action keeper_judge(const struct coupon_row *row, const struct coupon_look *look,
				const char *run_id)
{
	if (look->broken)
		return rebuild_is_due(row) ? COUPON_REBUILD : COUPON_KEEP;
	if (!look->present)
		return absent_judge(row, look);
	if (look->placeholder && row->generation == 0)
		return COUPON_REBUILD; /* its first load did not end */
	if (look->generation > row->generation)
		return rebuild_is_due(row) ? COUPON_REBUILD : COUPON_FOREIGN;
	if (look->generation < row->generation || look->placeholder || look->flagged ||
	    look->reported > look->seq)
		return COUPON_REBUILD;
	if (look->revocation < row->revocation)
		return COUPON_REVOKE;
	if (rebuild_is_due(row))
		return COUPON_COMPARE;
	if (strcmp(look->run_id, run_id) != 0)
		return COUPON_VERIFY;
	if (row->version > look->version)
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
