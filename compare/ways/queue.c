/*
 * 9. Redis decides, a message tells a worker, and the worker writes one row in one transaction: the
 * usual pipeline. The checks are separate commands, or one Lua script.
 */
#include "compare/way.h"

static const char *const script = "if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 0 end "
				  "if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return -1 end "
				  "redis.call('DECR', KEYS[1]) "
				  "return 1";

static void prepare(struct client *client)
{
	queue_clear(client);
	for (int item = 1; item <= client->market->items + 1; item++)
		redis_run(client, "SET stock:%d %d", item, client->market->stock);
}

static enum outcome buy_commands(struct client *client, const struct request *request)
{
	if (redis_run(client, "GET stock:%d", request->item) <= 0)
		return SOLD_OUT;
	if (redis_run(client, "SISMEMBER buyers:%d %d", request->item, request->user))
		return HAS_ONE;
	redis_run(client, "DECR stock:%d", request->item);
	redis_run(client, "SADD buyers:%d %d", request->item, request->user);
	queue_publish(client, request);
	return SOLD;
}

static enum outcome buy_script(struct client *client, const struct request *request)
{
	switch (redis_run(client, "EVAL %s 2 stock:%d buyers:%d %d", script, request->item,
			  request->item, request->user)) {
	case 0:
		return SOLD_OUT;
	case NONE:
		return HAS_ONE;
	default:
		queue_publish(client, request);
		return SOLD;
	}
}

static void worker_open(struct client *client)
{
	struct request request;

	sql(client, "SELECT 1");
	while (queue_take(client, &request)) /* of the connections' first sales */
		queue_ack(client);
}

static void worker_run(struct client *client, struct load *load)
{
	struct request request;

	while (!load_is_over(load) || load_written_n(load) < load_sold(load)) {
		if (!queue_take(client, &request))
			continue;
		sql(client, "BEGIN");
		sql(client, "INSERT INTO sale VALUES ($1, $2)", request.item, request.user);
		sql(client, "UPDATE item SET stock = stock - 1 WHERE id = $1", request.item);
		sql(client, "COMMIT");
		load_written(load, &request);
		queue_ack(client);
	}
}

const struct way way_queue_commands = {
	.id = "9a",
	.name = "commands, a message",
	.may = "oversold over_limit",
	.wrong = "between a client's check and its DECR others checked too: the stock falls below "
		 "nothing, and a user who asks twice at once is found to have none twice",
	.prepare = prepare,
	.buy = buy_commands,
	.open = worker_open,
	.work = worker_run,
};
const struct way way_queue_script = {
	.id = "9b",
	.name = "Lua script, a message",
	.prepare = prepare,
	.buy = buy_script,
	.open = worker_open,
	.work = worker_run,
};
