#include "common/rabbit/topology.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"

#include <stdatomic.h>

#define UNLIMITED_FROM 4 /* the major version of RabbitMQ that has a delivery limit by default */

const struct rabbit_queue_place rabbit_queue_places[RABBIT_QUEUES_N] = {
	[RABBIT_QUEUE_RECEIVES] = { .name = AMQP_QUEUE,
				    .exchange = AMQP_EXCHANGE,
				    .routing_key = AMQP_ROUTING_KEY },
	[RABBIT_QUEUE_PARKED] = { .name = AMQP_PARKED_QUEUE,
				  .exchange = AMQP_EXCHANGE,
				  .routing_key = AMQP_PARKED_KEY },
	[RABBIT_QUEUE_USES] = { .name = AMQP_USE_QUEUE,
				.exchange = AMQP_EXCHANGE,
				.routing_key = AMQP_USE_KEY },
	[RABBIT_QUEUE_DEAD] = { .name = AMQP_DEAD_QUEUE,
				.exchange = AMQP_DEAD_EXCHANGE,
				.routing_key = "#" },
};

static atomic_uint differing; /* one bit for each queue; all connections have the same broker */

static int differs(enum rabbit_queue queue)
{
	return (atomic_load(&differing) & 1u << queue) != 0;
}

struct declaring {
	amqp_connection_state_t connection;
	int nowait;
	int confirms;
	int64_t deadline_ms;
	char *error;
};

/*
 * One declaration or binding. Without `nowait` its reply has the next method number. 0, the status
 * of the library, or -1 with `*code`: why the broker closed the channel, 0 if it did not.
 */
static int step(const struct declaring *declaring, amqp_method_number_t id, void *method, int *code)
{
	amqp_method_number_t replies[] = { id + 1, 0 };
	amqp_rpc_reply_t reply;

	*code = 0;
	if (declaring->nowait)
		return amqp_send_method(declaring->connection, RABBIT_CHANNEL, id, method);
	rabbit_time_left_set(declaring->connection, declaring->deadline_ms);
	reply = amqp_simple_rpc(declaring->connection, RABBIT_CHANNEL, id, replies, method);
	*code = rabbit_reply_code(reply);
	return rabbit_reply_check(reply, declaring->error);
}

static int queue_declare(const struct declaring *declaring, const char *name, int passive,
			 int *code)
{
	amqp_table_entry_t arguments[] = {
		{ .key = amqp_cstring_bytes("x-queue-type"),
		  .value = { .kind = AMQP_FIELD_KIND_UTF8,
			     .value.bytes = amqp_cstring_bytes("quorum") } },
		{ .key = amqp_cstring_bytes("x-delivery-limit"),
		  .value = { .kind = AMQP_FIELD_KIND_I32, .value.i32 = -1 } },
	};
	int arguments_n = rabbit_server_major(declaring->connection) >= UNLIMITED_FROM ? 2 : 1;
	amqp_queue_declare_t method = { .queue = amqp_cstring_bytes(name),
					.durable = 1,
					.passive = passive,
					.nowait = declaring->nowait,
					.arguments = { .num_entries = arguments_n,
						       .entries = arguments } };

	return step(declaring, AMQP_QUEUE_DECLARE_METHOD, &method, code);
}

/*
 * As queue_declare(). If the broker refuses for the reason `refusal`, it closes the channel, which
 * is opened again: 1.
 */
static int queue_declare_or_reopen(const struct declaring *declaring, const char *name, int passive,
				   int refusal)
{
	char ignored[RABBIT_ERROR_SIZE];
	int code, status = queue_declare(declaring, name, passive, &code);

	if (code != refusal)
		return status;
	return rabbit_channel_reopen(declaring->connection, declaring->confirms,
				     declaring->deadline_ms, ignored)
		       ? -1
		       : 1;
}

/*
 * Declares the queue, or finds it as it is, and binds it. A queue that is there is not bound again:
 * RabbitMQ before Khepri locks its tables on all nodes for a binding, even for one that exists, and
 * while one of them does not answer this waits for a minute, until it counts as down. A binding
 * that is missing is noticed by the publisher whose message is returned, and it declares with
 * `nowait`.
 */
static int queue_place(const struct declaring *declaring, enum rabbit_queue queue)
{
	const struct rabbit_queue_place *place = &rabbit_queue_places[queue];
	amqp_queue_bind_t binding = { .queue = amqp_cstring_bytes(place->name),
				      .exchange = amqp_cstring_bytes(place->exchange),
				      .routing_key = amqp_cstring_bytes(place->routing_key),
				      .nowait = declaring->nowait };
	int code, status, is_new = 1;

	if (declaring->nowait) {
		status = queue_declare(declaring, place->name, differs(queue), &code);
	} else {
		is_new = queue_declare_or_reopen(declaring, place->name, 1, AMQP_NOT_FOUND);
		if (is_new < 0)
			return is_new;
		status = queue_declare_or_reopen(declaring, place->name, 0,
						 AMQP_PRECONDITION_FAILED);
		if (status == 0)
			atomic_fetch_and(&differing, ~(1u << queue));
		if (status == 1) {
			if (!(atomic_fetch_or(&differing, 1u << queue) & 1u << queue))
				log_error("queue_differs", LOG_S("name", place->name),
					  LOG_S("error", declaring->error),
					  LOG_S("mend", "couponctl queue move"));
			status = queue_declare(declaring, place->name, 1, &code);
		}
	}
	if (status || !is_new)
		return status;
	return step(declaring, AMQP_QUEUE_BIND_METHOD, &binding, &code);
}

/*
 * Declares all of it; everything is idempotent. 0, or the status of the step that failed. An
 * exchange that exists with other properties is an error, and is logged.
 */
static int declaring_run(const struct declaring *declaring)
{
	static const char *const exchanges[] = { AMQP_EXCHANGE, AMQP_DEAD_EXCHANGE,
						 AMQP_EVENT_EXCHANGE };
	int status, code;

	for (size_t i = 0; i < sizeof(exchanges) / sizeof(exchanges[0]); i++) {
		amqp_exchange_declare_t method = { .exchange = amqp_cstring_bytes(exchanges[i]),
						   .type = amqp_cstring_bytes("topic"),
						   .durable = 1,
						   .nowait = declaring->nowait };

		status = step(declaring, AMQP_EXCHANGE_DECLARE_METHOD, &method, &code);
		if (code == AMQP_PRECONDITION_FAILED)
			log_error("exchange_differs", LOG_S("name", exchanges[i]),
				  LOG_S("error", declaring->error));
		if (status)
			return status;
	}
	for (enum rabbit_queue queue = 0; queue < RABBIT_QUEUES_N; queue++)
		if ((status = queue_place(declaring, queue)))
			return status;
	return 0;
}

int rabbit_topology_declare(amqp_connection_state_t connection, int confirms, int64_t deadline_ms,
			    char error[RABBIT_ERROR_SIZE])
{
	const struct declaring declaring = { .connection = connection,
					     .confirms = confirms,
					     .deadline_ms = deadline_ms,
					     .error = error };

	return declaring_run(&declaring) ? -1 : 0;
}

int rabbit_topology_declare_send(amqp_connection_state_t connection)
{
	return declaring_run(&(struct declaring){ .connection = connection, .nowait = 1 });
}

int rabbit_queue_declare(amqp_connection_state_t connection, int confirms, const char *name,
			 char error[RABBIT_ERROR_SIZE])
{
	struct declaring declaring = { .connection = connection,
				       .confirms = confirms,
				       .deadline_ms = clock_monotonic_ms() +
						      2000 * RABBIT_TIMEOUT_S,
				       .error = error };
	int rc = queue_declare_or_reopen(&declaring, name, 0, AMQP_PRECONDITION_FAILED);

	rabbit_time_restore(connection);
	return rc;
}

int rabbit_topology_differing_n(void)
{
	int n = 0;

	for (enum rabbit_queue queue = 0; queue < RABBIT_QUEUES_N; queue++)
		n += differs(queue);
	return n;
}

void rabbit_topology_warnings(cJSON *array)
{
	for (enum rabbit_queue queue = 0; queue < RABBIT_QUEUES_N; queue++)
		if (differs(queue))
			json_sentence_add(array,
					  "rabbitmq: %s exists with other arguments, for instance "
					  "a delivery limit; run couponctl queue move",
					  rabbit_queue_places[queue].name);
}
