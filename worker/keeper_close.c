#include "worker/keeper_close.h"

#include "common/fault.h"
#include "common/log.h"
#include "worker/metrics.h"

int close_due(const struct coupon_row *row, int64_t now_ms)
{
	return row->status != COUPON_CLOSED && row->end_ms > 0 && now_ms >= row->end_ms + CLOSE_GRACE_MS;
}

int close_ended(struct keeper_view *view, const struct coupon_row *row)
{
	int closed, rc;

	fault_point(FAULT_KEEPER_BEFORE_CLOSE);
	rc = keeper_database_close(view->database, row->id, row->version, view->fence, &closed);
	if (rc < 0)
		return -1;
	if (rc > 0)
		return keeper_fenced(view);
	if (!closed)
		return 0; /* its terms were changed meanwhile: the next look judges them */
	log_info("coupon_ended", LOG_I("coupon", row->id), LOG_I("issued", row->issued), LOG_I("total", row->total));
	metrics_add(METRIC_KEEPER_CLOSED, 1);
	return 0;
}
