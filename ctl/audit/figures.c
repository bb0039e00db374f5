#include "ctl/audit/figures.h"

#include "ctl/audit/stall.h"

#include <stdio.h>

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

void figures_print(const struct pass *pass)
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

cJSON *figures_json(const struct pass *pass)
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
