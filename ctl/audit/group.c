#include "ctl/audit/group.h"

#include "ctl/audit/coupon.h"
#include "ctl/audit/stall.h"

#define GROUP_SUSPECTS_MAX (1000 * 1000) /* 100 MB */

static int all_look(struct group *group)
{
	int done = 1;

	for (size_t i = 0; i < group->n; i++) {
		watch_look(&group->list[i]->watch);
		done &= group->list[i]->watch.done;
	}
	return done;
}

/* Looks until nothing else is to be found out about any of them. */
static void all_watch(struct group *group)
{
	int again;

	for (size_t i = 0; i < group->n; i++)
		if (!group->list[i]->watch.done)
			watch_start(&group->list[i]->watch, &group->list[i]->pass);
	do {
		again = 0;
		do
			watch_pause();
		while (!all_look(group));
		for (size_t i = 0; i < group->n; i++)
			again |= coupon_audit_again(group->list[i]);
	} while (again);
}

static void stalled_seek(struct group *group)
{
	struct locks locks = { .n = 0 };
	int found = 0;

	for (size_t i = 0; i < group->n; i++)
		found |= stall_search(&group->list[i]->pass);
	if (!found)
		return;
	stall_pause(group->audit, &locks);
	for (size_t i = 0; i < group->n; i++)
		if (group->list[i]->pass.stall.n > 0)
			stall_confirm(&group->list[i]->pass, &locks);
}

void group_end(struct group *group)
{
	if (group->n == 0)
		return;
	all_watch(group);
	stalled_seek(group);
	for (size_t i = 0; i < group->n; i++)
		coupon_audit_end(group->list[i], group->coupons);
	group->n = group->suspects_n = 0;
}

void group_audit(struct group *group, int64_t coupon)
{
	struct coupon_audit *one = coupon_audit_new(group->audit, coupon);

	while (one->watch.done && coupon_audit_again(one))
		;
	if (one->watch.done && !stall_search(&one->pass)) {
		coupon_audit_end(one, group->coupons);
		return;
	}
	group->list[group->n++] = one;
	group->suspects_n += one->pass.open.n + one->pass.rows.n + one->pass.outbox.settled.n;
	if (group->n == GROUP_MAX || group->suspects_n >= GROUP_SUSPECTS_MAX)
		group_end(group);
}
