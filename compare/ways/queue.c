/*
 * 9. Redis decides, a message tells a worker, and the worker writes one row in one transaction: the
 * usual pipeline. The checks are separate commands, or one Lua script. The best of its kind writes
 * all messages that have arrived in one transaction, and carries many clients over a connection.
 */
#include "common/check.h"
#include "compare/way.h"

#include <stdlib.h>

#define BATCH_MAX 500 /* rows in a transaction */
#define WORKERS 2     /* that write batches: more would only wait for each other's row */

static void prepare(struct client *client)
{
	queue_clear(client);
	script_prepare(client);
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

static enum outcome tell(struct client *client, const struct request *request, enum outcome outcome)
{
	if (outcome == SOLD)
		queue_publish(client, request);
	return outcome;
}

static enum outcome buy_script(struct client *client, const struct request *request)
{
	return tell(client, request, script_buy(client, request));
}

static enum outcome answer_script(struct client *client, struct asked *asked)
{
	return tell(client, asked->request, script_answer(client, asked));
}

static void worker_open(struct client *client)
{
	struct request request;

	sql(client, "SELECT 1");
	while (queue_take(client, &request, QUEUE_MOMENT_US)) /* of the first sales */
		queue_ack(client, 0);
}

static void worker_run(struct client *client, struct load *load)
{
	struct request request;

	while (!load_is_written(load)) {
		if (!queue_take(client, &request, QUEUE_MOMENT_US))
			continue;
		sql(client, "BEGIN");
		sql(client, "INSERT INTO sale VALUES ($1, $2)", request.item, request.user);
		sql(client, "UPDATE item SET stock = stock - 1 WHERE id = $1", request.item);
		sql(client, "COMMIT");
		load_written(load, &request);
		queue_ack(client, 0);
	}
}

/* Waits for a message, and takes those that are here as well. Returns how many. */
static int batch_take(struct client *client, struct request *batch)
{
	int n = 0;

	while (n < BATCH_MAX && queue_take(client, &batch[n], n ? 0 : QUEUE_MOMENT_US))
		n++;
	return n;
}

static void item_write(struct client *client, int item, const struct request *batch, int n)
{
	long long buyers[BATCH_MAX];
	int buyers_n = buyers_of(batch, n, item, buyers);

	if (buyers_n == 0)
		return;
	sql_many(client, "INSERT INTO sale SELECT $1, unnest($2::bigint[])", item, buyers, buyers_n,
		 NULL);
	sql(client, "UPDATE item SET stock = stock - $2 WHERE id = $1", item, buyers_n);
}

static void worker_run_batches(struct client *client, struct load *load)
{
	struct request *batch = checked(calloc(BATCH_MAX, sizeof(*batch)));

	while (!load_is_written(load)) {
		int n = batch_take(client, batch);

		if (n == 0)
			continue;
		sql(client, "BEGIN");
		for (int item = 1; item <= client->market->items; item++)
			item_write(client, item, batch, n);
		sql(client, "COMMIT");
		for (int i = 0; i < n; i++)
			load_written(load, &batch[i]);
		queue_ack(client, 1);
	}
	free(batch);
}

const struct way ways_queue[] = {
	{
		.id = "9a",
		.name = "commands, a message",
		.may = "oversold over_limit",
		.wrong = "between a client's check and its DECR others checked too: the stock "
			 "falls below "
			 "nothing, and a user who asks twice at once is found to have none twice",
		.prepare = prepare,
		.buy = buy_commands,
		.open = worker_open,
		.work = worker_run,
	},
	{
		.id = "9b",
		.name = "Lua script, a message",
		.prepare = prepare,
		.buy = buy_script,
		.open = worker_open,
		.work = worker_run,
	},
	{
		.id = "9c",
		.name = "queue, rows in batches",
		.is_batch = 1,
		.prepare = prepare,
		.buy = buy_script,
		.open = worker_open,
		.work = worker_run_batches,
		.workers = WORKERS,
	},
	{
		.id = "9d",
		.name = "queue batches, pipelined",
		.is_batch = 1,
		.prepare = prepare,
		.ask = script_ask,
		.answer = answer_script,
		.open = worker_open,
		.work = worker_run_batches,
		.workers = WORKERS,
	},
	{ 0 },
};
