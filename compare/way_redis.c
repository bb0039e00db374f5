/*
 * The ways in which Redis decides: alone, or with a queue behind it.
 *
 * 7. With WATCH: MULTI … EXEC does nothing if another client has changed a key since WATCH. Who
 * comes second has failed, and may try again. A Lua script needs no WATCH.
 *
 * 13. A list with a token for each piece: who takes one has a piece. Who dies between the commands
 * has a place among the buyers and no token, or the reverse.
 *
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

static enum sale_outcome unwatch(struct seller *seller, enum sale_outcome outcome)
{
	redis_run(seller, "UNWATCH");
	return outcome;
}

static enum sale_outcome watch(struct seller *seller, const struct sale_request *request)
{
	redis_run(seller, "WATCH stock:%d", request->item);
	if (redis_run(seller, "GET stock:%d", request->item) <= 0)
		return unwatch(seller, SOLD_OUT);
	if (redis_run(seller, "SISMEMBER buyers:%d %d", request->item, request->user))
		return unwatch(seller, HAS_ONE);
	gap(seller->market, request);
	redis_run(seller, "MULTI");
	redis_run(seller, "DECR stock:%d", request->item);
	redis_run(seller, "SADD buyers:%d %d", request->item, request->user);
	return redis_run(seller, "EXEC") == NONE ? FAILED : SOLD;
}

/* Two round trips: what is read, and what is written. */
static enum sale_outcome watch_pipelined(struct seller *seller, const struct sale_request *request)
{
	long long stock, has_one;

	redis_ask(seller, "WATCH stock:%d", request->item);
	redis_ask(seller, "GET stock:%d", request->item);
	redis_ask(seller, "SISMEMBER buyers:%d %d", request->item, request->user);
	redis_answer(seller);
	stock = redis_answer(seller);
	has_one = redis_answer(seller);
	if (stock <= 0 || has_one)
		return unwatch(seller, has_one ? HAS_ONE : SOLD_OUT);
	redis_ask(seller, "MULTI");
	redis_ask(seller, "DECR stock:%d", request->item);
	redis_ask(seller, "SADD buyers:%d %d", request->item, request->user);
	redis_ask(seller, "EXEC");
	for (int queued = 0; queued < 3; queued++)
		redis_answer(seller);
	return redis_answer(seller) == NONE ? FAILED : SOLD;
}

/* ---- the script */

static char script_sha[REDIS_SHA_SIZE];

static void stock_set(struct seller *seller)
{
	for (int item = 1; item <= seller->market->items + 1; item++)
		redis_run(seller, "SET stock:%d %d", item, seller->market->stock);
}

static void script_prepare(struct seller *seller)
{
	stock_set(seller);
	redis_script_load(seller,
			  "if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 0 end "
			  "if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return -1 end "
			  "redis.call('DECR', KEYS[1]) "
			  "return 1",
			  script_sha);
}

static void script_ask(struct seller *seller, const struct sale_asked *asked)
{
	redis_ask(seller, "EVALSHA %s 2 stock:%d buyers:%d %d", script_sha, asked->request->item,
		  asked->request->item, asked->request->user);
}

static enum sale_outcome script_answer(struct seller *seller, struct sale_asked *asked)
{
	(void)asked;
	switch (redis_answer(seller)) {
	case 0:
		return SOLD_OUT;
	case NONE:
		return HAS_ONE;
	default:
		return SOLD;
	}
}

static enum sale_outcome script_buy(struct seller *seller, const struct sale_request *request)
{
	struct sale_asked asked = { .request = request };

	script_ask(seller, &asked);
	return script_answer(seller, &asked);
}

/* ---- tokens */

static void tokens_prepare(struct seller *seller)
{
	const struct market *market = seller->market;

	for (int item = 1; item <= market->items + 1; item++) {
		redis_run(seller, "SET stock:%d 0", item);
		redis_run(seller, "EVAL %s 1 tokens:%d %d",
			  "for i = 1, ARGV[1] do redis.call('RPUSH', KEYS[1], i) end return 1",
			  item, market->stock);
	}
}

static enum sale_outcome token_buy(struct seller *seller, const struct sale_request *request)
{
	if (!redis_run(seller, "SADD buyers:%d %d", request->item, request->user))
		return HAS_ONE;
	if (redis_run(seller, "LPOP tokens:%d", request->item) != NONE)
		return SOLD;
	redis_run(seller, "SREM buyers:%d %d", request->item, request->user);
	return SOLD_OUT;
}

const struct way ways_redis[] = {
	{
		.id = "7a",
		.name = "Redis WATCH, once",
		.may = "unsold",
		.wrong = "of the clients that watch the stock only one can write: the others were "
			 "sent away while there was stock",
		.ledger = IN_REDIS,
		.prepare = stock_set,
		.buy = watch,
		.tries = 1,
	},
	{
		.id = "7b",
		.name = "Redis WATCH, retried",
		.ledger = IN_REDIS,
		.prepare = stock_set,
		.buy = watch,
	},
	{
		.id = "7c",
		.name = "WATCH in 2 round trips",
		.ledger = IN_REDIS,
		.prepare = stock_set,
		.buy = watch_pipelined,
	},
	{
		.id = "7d",
		.name = "Redis, a Lua script",
		.ledger = IN_REDIS,
		.prepare = script_prepare,
		.buy = script_buy,
	},
	{
		.id = "7e",
		.name = "Lua script, pipelined",
		.ledger = IN_REDIS,
		.prepare = script_prepare,
		.ask = script_ask,
		.answer = script_answer,
	},
	{
		.id = "13",
		.name = "tokens, a list in Redis",
		.ledger = IN_REDIS,
		.prepare = tokens_prepare,
		.buy = token_buy,
	},
	{ 0 },
};

/* ---- the queue: durable, with persistent messages of one request each */

#define QUEUE "compare"
#define PREFETCH 500
#define MESSAGE_SIZE 32
#define QUEUE_MOMENT_US 20000 /* for a message */

#define BATCH_MAX 500 /* rows in a transaction */
#define WORKERS 2     /* that write batches: more would only wait for each other's row */

static void rpc_check(struct seller *seller, const char *what)
{
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_reply_check(amqp_get_rpc_reply(seller->queue), error))
		store_fail("RabbitMQ", what, error);
}

static void queue_open(struct seller *seller)
{
	char error[RABBIT_ERROR_SIZE];

	if (seller->queue)
		return;
	seller->queue = rabbit_connection_open(seller->market->rabbit, 0, error);
	if (!seller->queue)
		store_fail("RabbitMQ", "connect", error);
	amqp_queue_declare(seller->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE), 0, 1, 0, 0,
			   amqp_empty_table);
	rpc_check(seller, "declare the queue");
}

static void queue_publish(struct seller *seller, const struct sale_request *request)
{
	char body[MESSAGE_SIZE];
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
					       .delivery_mode = AMQP_DELIVERY_PERSISTENT };

	queue_open(seller);
	snprintf(body, sizeof(body), "%d %d", request->item, request->user);
	if (amqp_basic_publish(seller->queue, RABBIT_CHANNEL, amqp_empty_bytes,
			       amqp_cstring_bytes(QUEUE), 0, 0, &properties,
			       amqp_cstring_bytes(body)) != AMQP_STATUS_OK)
		store_fail("RabbitMQ", "publish", body);
}

/* Waits up to `wait_us` for a message. 0: there was none. */
static int queue_take(struct seller *seller, struct sale_request *request, int wait_us)
{
	char body[MESSAGE_SIZE] = "", error[RABBIT_ERROR_SIZE];
	amqp_envelope_t envelope;
	amqp_rpc_reply_t reply;

	if (!seller->is_consuming) {
		queue_open(seller);
		amqp_basic_qos(seller->queue, RABBIT_CHANNEL, 0, PREFETCH, 0);
		amqp_basic_consume(seller->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE),
				   amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
		rpc_check(seller, "consume");
		seller->is_consuming = 1;
	}
	amqp_maybe_release_buffers(seller->queue);
	reply = amqp_consume_message(seller->queue, &envelope,
				     &(struct timeval){ .tv_usec = wait_us }, 0);
	if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
	    reply.library_error == AMQP_STATUS_TIMEOUT)
		return 0;
	if (rabbit_reply_check(reply, error))
		store_fail("RabbitMQ", "consume", error);
	check(envelope.message.body.len < sizeof(body));
	memcpy(body, envelope.message.body.bytes, envelope.message.body.len);
	check(sscanf(body, "%d %d", &request->item, &request->user) == 2);
	seller->queue_tag = envelope.delivery_tag;
	amqp_destroy_envelope(&envelope);
	return 1;
}

/* Acks the message that was taken last, with `multiple` also all before it. */
static void queue_ack(struct seller *seller, int multiple)
{
	if (amqp_basic_ack(seller->queue, RABBIT_CHANNEL, seller->queue_tag, multiple))
		store_fail("RabbitMQ", "ack", "the connection is lost");
}

/* ---- the ways with it */

static void queue_prepare(struct seller *seller)
{
	queue_open(seller);
	amqp_queue_purge(seller->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE));
	rpc_check(seller, "purge the queue");
	script_prepare(seller);
}

static enum sale_outcome buy_commands(struct seller *seller, const struct sale_request *request)
{
	if (redis_run(seller, "GET stock:%d", request->item) <= 0)
		return SOLD_OUT;
	if (redis_run(seller, "SISMEMBER buyers:%d %d", request->item, request->user))
		return HAS_ONE;
	gap(seller->market, request);
	redis_run(seller, "DECR stock:%d", request->item);
	redis_run(seller, "SADD buyers:%d %d", request->item, request->user);
	queue_publish(seller, request);
	return SOLD;
}

static enum sale_outcome tell(struct seller *seller, const struct sale_request *request,
			      enum sale_outcome outcome)
{
	if (outcome == SOLD)
		queue_publish(seller, request);
	return outcome;
}

static enum sale_outcome buy_script(struct seller *seller, const struct sale_request *request)
{
	return tell(seller, request, script_buy(seller, request));
}

static enum sale_outcome answer_script(struct seller *seller, struct sale_asked *asked)
{
	return tell(seller, asked->request, script_answer(seller, asked));
}

static void worker_open(struct seller *seller)
{
	struct sale_request request;

	while (queue_take(seller, &request, QUEUE_MOMENT_US)) /* of the first sales */
		queue_ack(seller, 0);
}

static void worker_run(struct seller *seller, struct sales *sales)
{
	struct sale_request request;

	while (!sales_are_written(sales)) {
		if (!queue_take(seller, &request, QUEUE_MOMENT_US))
			continue;
		sql(seller, "BEGIN");
		sql(seller, "INSERT INTO sale VALUES ($1, $2)", request.item, request.user);
		sql(seller, "UPDATE item SET stock = stock - 1 WHERE id = $1", request.item);
		sql(seller, "COMMIT");
		sales_written(sales, &request);
		queue_ack(seller, 0);
	}
}

static void worker_run_batches(struct seller *seller, struct sales *sales)
{
	struct sale_request *batch = checked(calloc(BATCH_MAX, sizeof(*batch)));
	long long buyers[BATCH_MAX];

	while (!sales_are_written(sales)) {
		int n = 0;

		/* Waits for a message, and takes those that are here as well. */
		while (n < BATCH_MAX && queue_take(seller, &batch[n], n ? 0 : QUEUE_MOMENT_US))
			n++;
		if (n == 0)
			continue;

		sql(seller, "BEGIN");
		for (int item = 1; item <= seller->market->items; item++) {
			int buyers_n = buyers_of(batch, n, item, buyers);

			if (buyers_n == 0)
				continue;
			sql_many(seller, "INSERT INTO sale SELECT $1, unnest($2::bigint[])", item,
				 buyers, buyers_n, NULL);
			sql(seller, "UPDATE item SET stock = stock - $2 WHERE id = $1", item,
			    buyers_n);
		}
		sql(seller, "COMMIT");
		for (int i = 0; i < n; i++)
			sales_written(sales, &batch[i]);
		queue_ack(seller, 1);
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
		.prepare = queue_prepare,
		.buy = buy_commands,
		.open = worker_open,
		.work = worker_run,
	},
	{
		.id = "9b",
		.name = "Lua script, a message",
		.prepare = queue_prepare,
		.buy = buy_script,
		.open = worker_open,
		.work = worker_run,
	},
	{
		.id = "9c",
		.name = "queue, rows in batches",
		.is_batch = 1,
		.prepare = queue_prepare,
		.buy = buy_script,
		.open = worker_open,
		.work = worker_run_batches,
		.workers = WORKERS,
	},
	{
		.id = "9d",
		.name = "queue batches, pipelined",
		.is_batch = 1,
		.prepare = queue_prepare,
		.ask = script_ask,
		.answer = answer_script,
		.open = worker_open,
		.work = worker_run_batches,
		.workers = WORKERS,
	},
	{ 0 },
};
