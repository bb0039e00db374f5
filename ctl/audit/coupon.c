#include "ctl/audit/coupon.h"

#include "common/check.h"
#include "ctl/audit/codes.h"
#include "ctl/audit/compare.h"
#include "ctl/audit/counts.h"
#include "ctl/audit/figures.h"
#include "ctl/audit/receives.h"
#include "ctl/store.h"

#include <stdlib.h>
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

static void pass_run(struct coupon_audit *one)
{
	int is_sure;

	if (one->passes_n++ > 0)
		pass_fini(&one->pass);
	keeper_wait(one->audit, one->coupon);
	compare_run(&one->pass, one->audit, one->coupon);
	one->sum = pass_sum(&one->pass);
	if (one->sum == SUM_SUSPECT && ++one->suspected_n == SUSPECT_PASSES)
		one->sum = SUM_WRONG;
	is_sure = one->sum != SUM_SUSPECT && one->sum != SUM_UNSURE;
	one->watch.done = 1;
	one->is_void = !is_sure;
}

static void passes_run(struct coupon_audit *one)
{
	do
		pass_run(one);
	while (one->is_void && one->passes_n < PASSES_MAX);
	slot_set_fini(&one->pass.set); /* it is large, and of no more use */
	if (!one->is_void)
		watch_start(&one->watch, &one->pass);
}

struct coupon_audit *coupon_audit_new(struct audit *audit, int64_t coupon)
{
	struct coupon_audit *one = calloc(1, sizeof(*one));

	check(one != NULL);
	one->audit = audit;
	one->coupon = coupon;
	passes_run(one);
	return one;
}

int coupon_audit_again(struct coupon_audit *one)
{
	if (one->passes_n >= PASSES_MAX || !was_replaced(&one->pass))
		return 0;
	passes_run(one);
	return 1;
}

void coupon_audit_end(struct coupon_audit *one, cJSON *coupons)
{
	struct explained explained;

	receives_judge(&one->pass, &explained);
	counts_judge(&one->pass, &explained, one->sum);
	codes_audit(one->audit, one->coupon, one->pass.compared);
	one->audit->stalled_n += one->pass.stall.n > 0;
	one->audit->undecided_n += (one->pass.undecided && !one->pass.broker_ok) ||
				   one->pass.cut.held;
	if (coupons)
		check(cJSON_AddItemToArray(coupons, figures_json(&one->pass)));
	else
		figures_print(&one->pass);
	pass_fini(&one->pass);
	free(one);
}
