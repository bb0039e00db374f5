#include "keeper/put_off.h"

#include "common/clock.h"
#include "common/log.h"
#include "keeper/metrics.h"

#define FIRST_MS 1000
#define MOST_MS 10000

void put_off_add(struct put_off *put_off, int64_t coupon)
{
	struct put_off_coupon *place = &put_off->coupons[coupon % PUT_OFF_N];
	int64_t wait_ms = place->coupon == coupon ? 2 * place->wait_ms : FIRST_MS;

	if (wait_ms > MOST_MS)
		wait_ms = MOST_MS;
	*place = (struct put_off_coupon){ coupon, clock_monotonic_ms() + wait_ms, wait_ms };
	log_warn("coupon_put_off", LOG_I("coupon", coupon), LOG_I("for_ms", wait_ms));
	keeper_metrics_add(KEEPER_METRIC_PUT_OFF, 1);
}

int put_off_waits(const struct put_off *put_off, int64_t coupon)
{
	const struct put_off_coupon *place = &put_off->coupons[coupon % PUT_OFF_N];

	return place->coupon == coupon && clock_monotonic_ms() < place->due_ms;
}

void put_off_end(struct put_off *put_off, int64_t coupon)
{
	struct put_off_coupon *place = &put_off->coupons[coupon % PUT_OFF_N];

	if (place->coupon == coupon)
		*place = (struct put_off_coupon){ .coupon = 0 };
}

void put_off_hurry(struct put_off *put_off, int64_t coupon)
{
	struct put_off_coupon *place = &put_off->coupons[coupon % PUT_OFF_N];

	if (place->coupon == coupon)
		place->due_ms = 0;
}
