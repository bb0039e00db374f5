#include "ctl/audit/group.h"

#include "common/check.h"
#include "ctl/audit/codes.h"
#include "ctl/audit/compare.h"
#include "ctl/audit/receives.h"
#include "ctl/audit/pass.h"
#include "ctl/audit/stall.h"
#include "ctl/audit/watch.h"
#include "ctl/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The audit of one coupon. */
struct coupon_audit {
	struct audit *audit;
	int64_t coupon;
	struct pass pass; /* the last one */
	struct watch watch;
	enum sum_verdict sum;
	int passes_n;
	int suspected_n; /* passes that found the sum wrong while receives were accepted */
	int is_void;     /* the last pass has no sure sum */
};

/* Rejected receives whose slots Redis still holds. */
static int64_t unreleased(const struct pass *pass)
{
	return pass->pending > pass->row.unreleased ? pass->pending : pass->row.unreleased;
}

static int is_settled(const struct pass *pass)
{
	return pass->compared && pass->open.n == 0 && unreleased(pass) == 0 &&
	       pass_in_flight(pass) == 0;
}

static int64_t overdue(const struct pass *pass)
{
	int64_t n = pass->undecided ? pass->unnamed : 0;

	for (size_t i = 0; i < pass->open.n && pass->undecided; i++)
		n += pass->open.list[i].state == SUSPECT_OVERDUE;
	return n;
}

static void undecided_print(const struct pass *pass)
{
	if (!pass->undecided)
		return;
	printf("coupon %lld: %lld receives are older than the grace, and have neither an outcome "
	       "nor a message in the outbox; ",
	       (long long)pass->coupon, (long long)overdue(pass));
	if (!pass->broker_ok)
		printf("RabbitMQ cannot be queried: %s\n", broker_error(pass->audit->broker));
	else if (pass->locked_ms > 0)
		printf("a transaction of another session has held a lock for %lld s or longer: "
		       "whether a receive is lost cannot be decided until it ends\n",
		       (long long)(pass->locked_ms / 1000));
	else
		printf("%lld messages in the queue, %lld in the dead-letter queue: whether a "
		       "receive is lost cannot be decided yet\n",
		       (long long)pass->ready, (long long)pass->dead);
}

static void figures_print(const struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;

	if (!pass->cut.present) {
		printf("coupon %lld: not in Redis; user coupons %lld, in flight %lld\n",
		       (long long)pass->coupon, (long long)pass->rows_n,
		       (long long)pass_in_flight(pass));
		undecided_print(pass);
		stall_print(pass);
		return;
	}
	printf("coupon %lld: total %lld, stock %lld, taken slots %lld, reserved %lld, in flight "
	       "%lld%s; %s\n",
	       (long long)pass->coupon, (long long)c->total, (long long)c->stock,
	       (long long)cut_taken(&pass->cut), (long long)c->reserved,
	       (long long)pass_in_flight(pass),
	       pass->cut.verified ? ""
	       : pass->cut.held   ? ", a keeper is at work on it"
				  : ", not verified on this Redis process",
	       is_settled(pass) ? "settled, and each slot was compared"
	       : pass->compared ? "each slot was compared"
				: "its slots cannot be compared");
	if (unreleased(pass) > 0)
		printf("coupon %lld: %lld rejected receives, not released yet\n",
		       (long long)pass->coupon, (long long)unreleased(pass));
	if (c->lost)
		printf("coupon %lld: %lld of the total are lost until it is rebuilt\n",
		       (long long)pass->coupon, (long long)c->lost);
	undecided_print(pass);
	stall_print(pass);
}

static cJSON *figures_json(const struct pass *pass)
{
	const struct redis_coupon *c = &pass->cut.coupon;
	cJSON *object = output_object();

	output_id(object, "coupon", pass->coupon);
	output_bool(object, "loaded", pass->cut.present);
	output_number(object, "issued", pass->rows_n);
	output_number(object, "rejected", pass->row.rejected);
	output_number(object, "in_flight", pass_in_flight(pass));
	output_number(object, "overdue", overdue(pass));
	output_number(object, "stalled", pass->stall.n);
	output_add(object, "waits_for", stall_json(pass));
	if (pass->broker_asked && pass->broker_ok) {
		output_number(object, "queued", pass->ready);
		output_number(object, "dead", pass->dead);
	}
	if (!pass->cut.present)
		return object;
	output_bool(object, "verified", pass->cut.verified);
	output_number(object, "total", c->total);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", cut_taken(&pass->cut));
	output_number(object, "reserved", c->reserved);
	output_bool(object, "compared", pass->compared);
	output_bool(object, "settled", is_settled(pass));
	output_number(object, "unreleased", unreleased(pass));
	output_number(object, "lost", c->lost);
	return object;
}

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

/* A coupon that PostgreSQL has: its pass, and the first look of the watch. */
static struct coupon_audit *coupon_audit_new(struct audit *audit, int64_t coupon)
{
	struct coupon_audit *one = calloc(1, sizeof(*one));

	check(one != NULL);
	one->audit = audit;
	one->coupon = coupon;
	passes_run(one);
	return one;
}

/*
 * When the watch is done. 1: the coupon was rebuilt, loaded or unloaded meanwhile, and there is a
 * new pass.
 */
static int coupon_audit_again(struct coupon_audit *one)
{
	if (one->passes_n >= PASSES_MAX || !was_replaced(&one->pass))
		return 0;
	passes_run(one);
	return 1;
}

/*
 * Judges the pass and its `stall`, and frees it. The figures are appended to `coupons`, or printed
 * when that is NULL.
 */
static void coupon_audit_end(struct coupon_audit *one, cJSON *coupons)
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
