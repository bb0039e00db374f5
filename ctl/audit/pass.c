#include "ctl/audit/pass.h"

#include <string.h>

#define SET_MAX (8 * 1000 * 1000) /* 128 MB at most; what does not fit is looked up one by one */

void pass_init(struct pass *pass, struct audit *audit, int64_t coupon)
{
	memset(pass, 0, sizeof(*pass));
	pass->audit = audit;
	pass->coupon = coupon;
	slot_set_init(&pass->set, SET_MAX);
	slot_set_init(&pass->receives, SET_MAX);
}

void pass_fini(struct pass *pass)
{
	generations_fini(&pass->generations);
	PQclear(pass->twice);
	slot_set_fini(&pass->set);
	slot_set_fini(&pass->receives);
	slots_fini(&pass->malformed);
	slots_fini(&pass->beyond);
	suspects_fini(&pass->rows);
	suspects_fini(&pass->open);
	outbox_fini(&pass->outbox);
}

int64_t pass_gone(const struct pass *pass)
{
	int64_t rows = pass->row.issued - pass->rows_n;
	int64_t outcomes = pass->row.generation > 1
				   ? 0
				   : pass->row.settled_sum - pass->rows_n - pass->row.rejected;

	return rows > outcomes ? rows : outcomes;
}

int pass_counts_users(const struct pass *pass)
{
	return pass->row.limit == 1 && pass->cut.coupon.limit == 1 && pass->several_n == 0;
}

int64_t pass_outcomes_over(const struct pass *pass)
{
	return pass->rows_n + pass->row.rejected - pass->row.settled_sum;
}

int64_t pass_in_flight(const struct pass *pass)
{
	return generations_unsettled(&pass->generations, 0);
}

enum sum_verdict pass_sum(const struct pass *pass)
{
	const struct redis_coupon *a = &pass->cut.coupon, *b = &pass->after.coupon;
	int64_t freed = b->stock + b->seq - a->stock - a->seq + b->lost - a->lost;
	int64_t over = cut_taken(&pass->cut) - pass->counted;
	int64_t most = (int64_t)(pass->open.n + pass->rows.n) + pass->doubtful +
		       (int64_t)pass->malformed.n * pass->row.limit;

	if (!pass->compared)
		return SUM_RIGHT;
	if (pass_counts_users(pass))
		return SUM_AT_CUT;
	if (!pass->after.present || pass->after.bad || a->generation != b->generation ||
	    a->version != b->version || a->reserved != b->reserved || a->late != b->late ||
	    freed < 0)
		return SUM_UNSURE;
	if (over >= 0 && over <= most + freed)
		return SUM_RIGHT;
	/* A time of acceptance may be wrong once, when a clock jumped. */
	return freed == 0 && a->seq == b->seq && pass->by_time == 0 && pass->open.n == 0
		       ? SUM_WRONG
		       : SUM_SUSPECT;
}
