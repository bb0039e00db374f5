#include "compare/judge.h"

#include <stdlib.h>

struct count {
	long long stock, sold, over_limit;
};

static void postgres_count(struct client *client, int item, struct count *count)
{
	count->stock = sql(client,
			   "SELECT (SELECT stock FROM item WHERE id = $1) + "
			   "(SELECT coalesce(sum(stock), 0) FROM segment WHERE item = $1) + "
			   "(SELECT count(*) FROM piece WHERE item = $1)",
			   item);
	count->sold = sql(client, "SELECT count(*) FROM sale WHERE item = $1", item);
	count->over_limit = sql(client,
				"SELECT count(*) FROM (SELECT FROM sale WHERE item = $1 "
				"GROUP BY buyer HAVING count(*) > 1) AS twice",
				item);
}

static void couponmq_count(struct client *client, int item, struct count *count)
{
	long long coupon = client->market->coupons[item];

	count->stock = sql(client, "SELECT total_num - issued_num FROM public.coupon WHERE id = $1",
			   coupon);
	count->sold = sql(client, "SELECT count(*) FROM public.user_coupon WHERE coupon_id = $1",
			  coupon);
	count->over_limit = sql(client,
				"SELECT count(*) FROM (SELECT FROM public.user_coupon "
				"WHERE coupon_id = $1 GROUP BY user_id HAVING count(*) > 1) "
				"AS twice",
				coupon);
}

/* A set has each user once: nobody can have two. */
static void redis_count(struct client *client, int item, struct count *count)
{
	count->stock = redis_run(client, "GET stock:%d", item) +
		       redis_run(client, "LLEN tokens:%d", item);
	count->sold = redis_run(client, "SCARD buyers:%d", item);
	count->over_limit = 0;
}

static void item_count(struct client *client, enum ledger ledger, int item, struct count *count)
{
	switch (ledger) {
	case IN_POSTGRES:
		postgres_count(client, item, count);
		break;
	case IN_REDIS:
		redis_count(client, item, count);
		break;
	case IN_COUPONMQ:
		couponmq_count(client, item, count);
		break;
	}
}

/* How many users want the item. */
static int demand(const struct market *market, int item)
{
	return (market->users - (item - 1) + market->items - 1) / market->items;
}

static long long least(long long a, long long b)
{
	return a < b ? a : b;
}

static long long above_zero(long long n)
{
	return n > 0 ? n : 0;
}

static void item_judge(const struct market *market, int item, const struct count *count,
		       struct verdict *verdict)
{
	verdict->stock += count->stock;
	verdict->sold += count->sold;
	verdict->oversold += above_zero(count->sold - market->stock);
	verdict->miscounted += llabs(count->sold + count->stock - market->stock);
	verdict->over_limit += count->over_limit;
	verdict->unsold += above_zero(least(demand(market, item), market->stock) - count->sold);
}

void judge(struct market *market, const struct way *way, struct verdict *verdict)
{
	struct client *client = client_new(market);
	struct count count = { 0 };

	*verdict = (struct verdict){ 0 };
	for (int item = 1; item <= market->items; item++) {
		item_count(client, way->ledger, item, &count);
		item_judge(market, item, &count, verdict);
	}
	client_free(client);
}
