#include "compare/judge.h"

static void postgres_read(struct client *client, struct verdict *verdict)
{
	int items = client->market->items;

	verdict->stock = sql(client,
			     "SELECT (SELECT sum(stock) FROM item WHERE id <= $1) + "
			     "(SELECT coalesce(sum(stock), 0) FROM segment WHERE item <= $1)",
			     items);
	verdict->sold = sql(client, "SELECT count(*) FROM sale WHERE item <= $1", items);
	verdict->over_limit = sql(client,
				  "SELECT count(*) FROM (SELECT FROM sale WHERE item <= $1 "
				  "GROUP BY item, buyer HAVING count(*) > 1) AS twice",
				  items);
}

static void couponmq_read(struct client *client, struct verdict *verdict)
{
	for (int item = 1; item <= client->market->items; item++) {
		long long coupon = client->market->coupons[item];

		verdict->stock += sql(client,
				      "SELECT total_num - issued_num FROM public.coupon "
				      "WHERE id = $1",
				      coupon);
		verdict->sold += sql(client,
				     "SELECT count(*) FROM public.user_coupon "
				     "WHERE coupon_id = $1",
				     coupon);
		verdict->over_limit +=
			sql(client,
			    "SELECT count(*) FROM (SELECT FROM public.user_coupon "
			    "WHERE coupon_id = $1 GROUP BY user_id HAVING count(*) > 1) AS twice",
			    coupon);
	}
}

/* A set has each user once: nobody can have two. */
static void redis_read(struct client *client, struct verdict *verdict)
{
	for (int item = 1; item <= client->market->items; item++) {
		verdict->stock += redis_run(client, "GET stock:%d", item);
		verdict->sold += redis_run(client, "SCARD buyers:%d", item);
	}
}

/* As many pieces as can be sold when everybody gets what there is. */
static long long demand(const struct market *market)
{
	long long n = 0;

	for (int item = 1; item <= market->items; item++) {
		int users = (market->users - (item - 1) + market->items - 1) / market->items;

		n += users < market->stock ? users : market->stock;
	}
	return n;
}

void judge(struct market *market, const struct way *way, struct verdict *verdict)
{
	struct client *client = client_new(market);
	long long stock = (long long)market->stock * market->items;
	long long missing;

	*verdict = (struct verdict){ 0 };
	switch (way->ledger) {
	case IN_POSTGRES:
		postgres_read(client, verdict);
		break;
	case IN_REDIS:
		redis_read(client, verdict);
		break;
	case IN_COUPONMQ:
		couponmq_read(client, verdict);
		break;
	}
	client_free(client);
	verdict->oversold = verdict->sold > stock ? verdict->sold - stock : 0;
	verdict->miscounted = verdict->sold + verdict->stock - stock;
	missing = demand(market) - verdict->sold;
	verdict->unsold = missing > 0 ? missing : 0;
}
