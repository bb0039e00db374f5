#include "ctl/audit/coupon.h"

#include "common/check.h"
#include "ctl/audit/compare.h"
#include "ctl/audit/counts.h"
#include "ctl/audit/figures.h"
#include "ctl/audit/receives.h"
#include "ctl/audit/stall.h"
#include "ctl/audit/watch.h"
#include "ctl/store.h"

#include <string.h>
#include <unistd.h>

#define PASSES_MAX 6
#define SUSPECT_PASSES 3 /* that must find the sum wrong while receives are accepted */
#define PATIENCE_PAUSE_MS 100

/* Whether a keeper is about to load, verify or rebuild the coupon. */
static int is_unsettled(const struct audit_row *row, const struct cut *cut)
{
	if (!cut->keeper || cut->bad || !row->known)
		return 0;
	if (!cut->present)
		return strcmp(row->status, "published") == 0 || strcmp(row->status, "paused") == 0;
	return !cut->verified || cut->coupon.generation != row->generation;
}

static void keeper_wait(struct audit *audit, int64_t coupon)
{
	struct audit_row row;
	struct cut cut;

	for (; audit->patience_ms > 0; audit->patience_ms -= PATIENCE_PAUSE_MS) {
		audit_row_read(audit->db, coupon, &row);
		cut_read(audit, coupon, &cut, NULL, 0);
		if (!is_unsettled(&row, &cut))
			return;
		store_run_id_read(audit->redis, audit->run_id);
		usleep(PATIENCE_PAUSE_MS * 1000);
	}
}

/* Whether the coupon was rebuilt, loaded or unloaded during the pass: then the pass is void. */
static int was_replaced(const struct pass *pass)
{
	struct cut now;

	cut_read(pass->audit, pass->coupon, &now, NULL, 0);
	return !pass->cut.bad && (now.present != pass->cut.present ||
				  now.coupon.generation != pass->cut.coupon.generation);
}

/* 1 when the pass may be judged, with the verdict on its sum. */
static int pass_try(struct pass *pass, struct audit *audit, int64_t coupon, int *suspected,
		    enum sum_verdict *sum)
{
	keeper_wait(audit, coupon);
	compare_run(pass, audit, coupon);
	*sum = pass_sum(pass);
	if (*sum == SUM_SUSPECT && ++*suspected == SUSPECT_PASSES)
		*sum = SUM_WRONG;
	if (*sum == SUM_SUSPECT || *sum == SUM_UNSURE)
		return 0;
	watch_run(pass);
	return !was_replaced(pass);
}

void audit_coupon(struct audit *audit, int64_t coupon, cJSON *coupons)
{
	static struct pass pass;
	struct explained explained;
	enum sum_verdict sum = SUM_RIGHT;
	int suspected = 0;

	for (int i = 1; !pass_try(&pass, audit, coupon, &suspected, &sum) && i < PASSES_MAX; i++)
		pass_fini(&pass);
	stall_judge(&pass);
	receives_judge(&pass, &explained);
	counts_judge(&pass, &explained, sum);
	audit->stalled_n += pass.stall.n > 0;
	audit->undecided_n += (pass.undecided && !pass.broker_ok) || pass.cut.held;
	if (coupons)
		check(cJSON_AddItemToArray(coupons, figures_json(&pass)));
	else
		figures_print(&pass);
	pass_fini(&pass);
}
