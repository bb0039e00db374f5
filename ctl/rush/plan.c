#include "ctl/rush/plan.h"

#include <string.h>

#define CONNECTIONS 50
#define CONNECTIONS_MAX 10000
#define PIPELINE 64
#define PIPELINE_MAX 4096
#define TIMEOUT_S 10

const char *rush_ack_text(enum rush_ack ack)
{
	static const char *const texts[] = { "accepted", "queued", "issued" };

	return texts[ack];
}

static enum rush_ack ack_read(const struct args *args)
{
	const char *text = args_text(args, "ack");

	if (!text)
		return RUSH_ACCEPTED;
	for (int ack = RUSH_ACCEPTED; ack <= RUSH_ISSUED; ack++)
		if (strcmp(text, rush_ack_text((enum rush_ack)ack)) == 0)
			return (enum rush_ack)ack;
	args_fail("--ack is \"%s\": allowed are accepted, queued and issued", text);
}

void rush_plan_read(struct rush_plan *plan, const struct args *args)
{
	int64_t requests_n;

	memset(plan, 0, sizeof(*plan));
	rush_coupons_read(&plan->coupons, args);
	rush_users_read(&plan->users, args);
	rush_codes_read(&plan->codes, args, plan->users.n);
	if (plan->codes.list && plan->coupons.n > 1)
		args_fail("--codes is for one coupon, that of the codes, and there are %u",
			  (unsigned)plan->coupons.n);
	plan->requests_per_user = (uint32_t)args_number(args, "requests-per-user", 1, 1000, 1);
	requests_n = (int64_t)plan->users.n * plan->requests_per_user;
	if (requests_n > RUSH_REQUESTS_MAX)
		args_fail("--requests-per-user is %u: with --users that is %lld requests, and "
			  "allowed are %d",
			  plan->requests_per_user, (long long)requests_n, RUSH_REQUESTS_MAX);
	plan->requests_n = (uint32_t)requests_n;
	plan->keys = args_has(args, "keys");
	plan->ack = ack_read(args);
	plan->rate = args_number(args, "rate", 1, 10000000, 0);
	plan->connections_n = (uint32_t)args_number(args, "connections", 1, CONNECTIONS_MAX,
						    CONNECTIONS);
	plan->pipeline = (uint32_t)args_number(args, "pipeline", 1, PIPELINE_MAX, PIPELINE);
	plan->timeout_us = args_number(args, "timeout-s", 1, 3600, TIMEOUT_S) * 1000000;
	if (plan->connections_n > plan->requests_n)
		plan->connections_n = plan->requests_n;
}

void rush_plan_fini(struct rush_plan *plan)
{
	rush_coupons_fini(&plan->coupons);
	rush_codes_fini(&plan->codes);
}

static char *put(char *out, const char *text, size_t len)
{
	memcpy(out, text, len);
	return out + len;
}

#define PUT(out, literal) put(out, literal, sizeof(literal) - 1)

static char *put_request(char *out, uint32_t request)
{
	if (request == 0)
		return PUT(out, "0");
	return out + id_format(request, out);
}

size_t rush_plan_line(const struct rush_plan *plan, uint32_t request, char *out)
{
	uint32_t i = rush_plan_user(plan, request);
	struct user_id user = rush_users_id(&plan->users, i);
	const struct rush_coupon *coupon = &plan->coupons.list[rush_plan_coupon(plan, i)];
	char *p = out;

	p = PUT(p, "{\"id\":");
	p = put_request(p, request);
	if (plan->codes.list) {
		p = PUT(p, ",\"op\":\"redeem\",\"code\":\"");
		p = put(p, plan->codes.list[i], strlen(plan->codes.list[i]));
	} else {
		p = PUT(p, ",\"op\":\"issue\",\"coupon\":\"");
		p = put(p, coupon->text, coupon->len);
	}
	p = PUT(p, "\",\"user\":\"");
	p = put(p, user.text, user.len);
	if (plan->keys) {
		p = PUT(p, "\",\"key\":\"rush-");
		p = put(p, user.text, user.len);
	}
	if (plan->ack != RUSH_ACCEPTED) {
		const char *ack = rush_ack_text(plan->ack);

		p = PUT(p, "\",\"ack\":\"");
		p = put(p, ack, strlen(ack));
	}
	p = PUT(p, "\"}\n");
	return (size_t)(p - out);
}

int64_t rush_plan_due_us(const struct rush_plan *plan, uint32_t request)
{
	return (int64_t)request * 1000000 / plan->rate;
}
