/*
 * 9. Redis decides, a message tells a worker, and the worker writes one row in one transaction: the
 * usual pipeline. The checks are separate commands, or one Lua script. The best of its kind writes
 * all messages that have arrived in one transaction, and carries many clients over a connection.
 */
#include "common/check.h"
#include "compare/way.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define QUEUE "compare"
#define PREFETCH 500
#define MESSAGE_SIZE 32
#define QUEUE_MOMENT_US 20000 /* for a message */

#define BATCH_MAX 500 /* rows in a transaction */
#define WORKERS 2     /* that write batches: more would only wait for each other's row */

/* ---- the queue: durable, with persistent messages of one request each */

static void rpc_check(struct client *client, const char *what)
{
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_reply_check(amqp_get_rpc_reply(client->queue), error))
		client_fail("RabbitMQ", what, error);
}

static void queue_open(struct client *client)
{
	char error[RABBIT_ERROR_SIZE];

	if (client->queue)
		return;
	client->queue = rabbit_connection_open(client->market->rabbit, 0, error);
	if (!client->queue)
		client_fail("RabbitMQ", "connect", error);
	amqp_queue_declare(client->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE), 0, 1, 0, 0,
			   amqp_empty_table);
	rpc_check(client, "declare the queue");
}

static void queue_clear(struct client *client)
{
	queue_open(client);
	amqp_queue_purge(client->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE));
	rpc_check(client, "purge the queue");
}

static void queue_publish(struct client *client, const struct request *request)
{
	char body[MESSAGE_SIZE];
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
					       .delivery_mode = AMQP_DELIVERY_PERSISTENT };

	queue_open(client);
	snprintf(body, sizeof(body), "%d %d", request->item, request->user);
	if (amqp_basic_publish(client->queue, RABBIT_CHANNEL, amqp_empty_bytes,
			       amqp_cstring_bytes(QUEUE), 0, 0, &properties,
			       amqp_cstring_bytes(body)) != AMQP_STATUS_OK)
		client_fail("RabbitMQ", "publish", body);
}

static void consume(struct client *client)
{
	queue_open(client);
	amqp_basic_qos(client->queue, RABBIT_CHANNEL, 0, PREFETCH, 0);
	amqp_basic_consume(client->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE),
			   amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
	rpc_check(client, "consume");
	client->is_consuming = 1;
}

/* Waits so long for a message. 0: there was none. */
static int queue_take(struct client *client, struct request *request, int wait_us)
{
	char body[MESSAGE_SIZE] = "", error[RABBIT_ERROR_SIZE];
	amqp_envelope_t envelope;
	amqp_rpc_reply_t reply;

	if (!client->is_consuming)
		consume(client);
	amqp_maybe_release_buffers(client->queue);
	reply = amqp_consume_message(client->queue, &envelope,
				     &(struct timeval){ .tv_usec = wait_us }, 0);
	if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
	    reply.library_error == AMQP_STATUS_TIMEOUT)
		return 0;
	if (rabbit_reply_check(reply, error))
		client_fail("RabbitMQ", "consume", error);
	check(envelope.message.body.len < sizeof(body));
	memcpy(body, envelope.message.body.bytes, envelope.message.body.len);
	check(sscanf(body, "%d %d", &request->item, &request->user) == 2);
	client->queue_tag = envelope.delivery_tag;
	amqp_destroy_envelope(&envelope);
	return 1;
}

/* Acks the message that was taken last, with `multiple` also all before it. */
static void queue_ack(struct client *client, int multiple)
{
	if (amqp_basic_ack(client->queue, RABBIT_CHANNEL, client->queue_tag, multiple))
		client_fail("RabbitMQ", "ack", "the connection is lost");
}

/* ---- the ways */

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
	gap(client->market, request);
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
