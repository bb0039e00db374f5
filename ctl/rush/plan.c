#include "ctl/rush/plan.h"

#include <string.h>

const char *rush_ack_text(enum rush_ack ack)
{
	static const char *const texts[] = { "accepted", "queued", "issued" };

	return texts[ack];
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
	char user[ID_SIZE], *p = out;
	size_t user_len = id_format(rush_plan_user(plan, request), user);

	p = PUT(p, "{\"id\":");
	p = put_request(p, request);
	p = PUT(p, ",\"op\":\"issue\",\"coupon\":\"");
	p = put(p, plan->coupon_text, plan->coupon_len);
	p = PUT(p, "\",\"user\":\"");
	p = put(p, user, user_len);
	if (plan->keys) {
		p = PUT(p, "\",\"key\":\"rush-");
		p = put(p, user, user_len);
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
