/*
 * One coupon's audit: passes until what they tell can be relied upon, then the verdict and the
 * figures.
 */
#include "ctl/audit/pass.h"

#include "common/check.h"
#include "ctl/rabbit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PASSES_MAX 6
#define SUSPECT_PASSES 3 /* that must find the sum wrong, while all goes on */
#define PATIENCE_PAUSE_MS 100

/* Whether a keeper is about to load, verify or rebuild it. */
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
		audit_redis_need(audit, cache_run_id(audit->cache, audit->run_id) == 0);
		usleep(PATIENCE_PAUSE_MS * 1000);
	}
}

/*
 * Whether the coupon is in another generation by now, or was taken out of Redis: then all was read
 * in vain.
 */
static int was_replaced(const struct pass *pass)
{
	struct cut now;

	cut_read(pass->audit, pass->coupon, &now, NULL, 0);
	return !pass->cut.bad && (now.present != pass->cut.present ||
				  now.coupon.generation != pass->cut.coupon.generation);
}

/* 1 when the pass may be judged, with the verdict on the sum. */
static int pass_try(struct pass *pass, struct audit *audit, int64_t coupon, int *suspected,
		    enum sum_verdict *sum)
{
	keeper_wait(audit, coupon);
	pass_run(pass, audit, coupon);
	*sum = pass_sum(pass);
	if (*sum == SUM_SUSPECT && ++*suspected == SUSPECT_PASSES)
		*sum = SUM_WRONG;
	if (*sum == SUM_SUSPECT || *sum == SUM_UNSURE)
		return 0;
	pass_watch(pass);
	return !was_replaced(pass);
}

static int64_t in_flight(const struct pass *pass)
{
	return generations_unsettled(&pass->generations, 0);
}

static int is_settled(const struct pass *pass)
{
	return pass->compared && pass->open.n == 0 && pass->pending == 0 &&
	       pass->row.unreleased == 0 && in_flight(pass) == 0;
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
	printf("coupon %lld: %lld receives are older than the grace and have no outcome; ",
	       (long long)pass->coupon, (long long)overdue(pass));
	if (!pass->broker_ok)
		printf("RabbitMQ cannot be asked: %s\n", broker_error(pass->audit->broker));
	else
		printf("%lld messages in the queue, %lld in the dead-letter queue: it cannot be "
		       "told yet whether any is lost\n",
		       (long long)pass->ready, (long long)pass->dead);
}

static void pass_print(const struct pass *pass)
{
	const struct cache_coupon *c = &pass->cut.coupon;

	if (!pass->cut.present) {
		printf("coupon %lld: not in Redis; user coupons %lld, in flight %lld\n",
		       (long long)pass->coupon, (long long)pass->rows_n,
		       (long long)in_flight(pass));
		undecided_print(pass);
		return;
	}
	printf("coupon %lld: total %lld, stock %lld, taken slots %lld, reserved %lld, in flight "
	       "%lld%s; %s\n",
	       (long long)pass->coupon, (long long)c->total, (long long)c->stock,
	       (long long)cut_taken(&pass->cut), (long long)c->reserved, (long long)in_flight(pass),
	       pass->cut.verified ? ""
	       : pass->cut.held   ? ", a keeper is at work on it"
				  : ", not verified on this Redis process",
	       is_settled(pass) ? "settled, and each slot was compared"
	       : pass->compared ? "each slot was compared"
				: "its slots cannot be compared");
	if (pass->pending + pass->row.unreleased > 0)
		printf("coupon %lld: %lld rejected receives whose slots were not given back yet\n",
		       (long long)pass->coupon,
		       (long long)(pass->row.unreleased > pass->pending ? pass->row.unreleased
									: pass->pending));
	if (c->lost)
		printf("coupon %lld: %lld of the total are lost until it is rebuilt\n",
		       (long long)pass->coupon, (long long)c->lost);
	undecided_print(pass);
}

static cJSON *pass_json(const struct pass *pass)
{
	const struct cache_coupon *c = &pass->cut.coupon;
	cJSON *object = output_object();
	char id[DB_NUMBER_SIZE];

	output_text(object, "coupon", db_number(pass->coupon, id));
	output_bool(object, "loaded", pass->cut.present);
	output_number(object, "issued", pass->rows_n);
	output_number(object, "rejected", pass->row.rejected);
	output_number(object, "in_flight", in_flight(pass));
	output_number(object, "overdue", overdue(pass));
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
	output_number(object, "unreleased",
		      pass->pending > pass->row.unreleased ? pass->pending : pass->row.unreleased);
	output_number(object, "lost", c->lost);
	return object;
}

void audit_coupon(struct audit *audit, int64_t coupon, cJSON *coupons)
{
	static struct pass pass;
	enum sum_verdict sum = SUM_RIGHT;
	int suspected = 0;

	for (int i = 1; !pass_try(&pass, audit, coupon, &suspected, &sum) && i < PASSES_MAX; i++)
		pass_fini(&pass);
	pass_judge(&pass, sum);
	audit->undecided_n += (pass.undecided && !pass.broker_ok) || pass.cut.held;
	if (coupons)
		check(cJSON_AddItemToArray(coupons, pass_json(&pass)));
	else
		pass_print(&pass);
	pass_fini(&pass);
}
