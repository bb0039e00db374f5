#include "common/rabbit/topology.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/rabbit/connection.h"
#include "common/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

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

static atomic_uint differing; /* a bit for each queue; all connections have the same broker */

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

static int exchange_declare(const struct declaring *declaring, const char *name)
{
	amqp_exchange_declare_t method = { .exchange = amqp_cstring_bytes(name),
					   .type = amqp_cstring_bytes("topic"),
					   .durable = 1,
					   .nowait = declaring->nowait };
	int code, status = step(declaring, AMQP_EXCHANGE_DECLARE_METHOD, &method, &code);

	if (code == AMQP_PRECONDITION_FAILED)
		log_error("exchange_differs", LOG_S("name", name),
			  LOG_S("error", declaring->error));
	return status;
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

/* Declares the queue, or finds it as it is. */
static int queue_ensure(const struct declaring *declaring, enum rabbit_queue queue)
{
	const char *name = rabbit_queue_places[queue].name;
	int code, status;

	if (declaring->nowait)
		return queue_declare(declaring, name, differs(queue), &code);
	status = queue_declare_or_reopen(declaring, name, 0, AMQP_PRECONDITION_FAILED);
	if (status == 0)
		atomic_fetch_and(&differing, ~(1u << queue));
	if (status != 1)
		return status;
	if (!(atomic_fetch_or(&differing, 1u << queue) & 1u << queue))
		log_error("queue_differs", LOG_S("name", name), LOG_S("error", declaring->error),
			  LOG_S("mend", "couponctl queue move"));
	return queue_declare(declaring, name, 1, &code);
}

static int queue_bind(const struct declaring *declaring, const struct rabbit_queue_place *place)
{
	amqp_queue_bind_t method = { .queue = amqp_cstring_bytes(place->name),
				     .exchange = amqp_cstring_bytes(place->exchange),
				     .routing_key = amqp_cstring_bytes(place->routing_key),
				     .nowait = declaring->nowait };
	int code;

	return step(declaring, AMQP_QUEUE_BIND_METHOD, &method, &code);
}

/*
 * Declares the queue and binds it, but one that is there is not bound again: RabbitMQ before Khepri
 * locks its tables on all nodes for a binding, even for one that exists, and while one of them does
 * not answer this waits for a minute, until it counts as down. A binding that is missing is
 * noticed by the publisher whose message is returned, and it declares with `nowait`.
 */
static int queue_place(const struct declaring *declaring, enum rabbit_queue queue)
{
	const struct rabbit_queue_place *place = &rabbit_queue_places[queue];
	int status, is_new = declaring->nowait;

	if (!declaring->nowait) {
		is_new = queue_declare_or_reopen(declaring, place->name, 1, AMQP_NOT_FOUND);
		if (is_new < 0)
			return is_new;
	}
	status = queue_ensure(declaring, queue);
	return status || !is_new ? status : queue_bind(declaring, place);
}

/*
 * Declares all of it; everything is idempotent. 0, or the status of the step that failed. An
 * exchange that exists with other properties is an error and is logged too.
 */
static int declaring_run(const struct declaring *declaring)
{
	static const char *const exchanges[] = { AMQP_EXCHANGE, AMQP_DEAD_EXCHANGE,
						 AMQP_EVENT_EXCHANGE };
	int status;

	for (size_t i = 0; i < sizeof(exchanges) / sizeof(exchanges[0]); i++)
		if ((status = exchange_declare(declaring, exchanges[i])))
			return status;
	for (enum rabbit_queue queue = 0; queue < RABBIT_QUEUES_N; queue++)
		if ((status = queue_place(declaring, queue)))
			return status;
	return 0;
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

/*
 * The caller and the thread hold one reference each; the release of the last one closes and frees.
 * The caller may read the result once the thread has released its reference.
 */
struct rabbit_opening {
	atomic_int shares;
	int fd;
	struct rabbit_opening_plan plan;
	amqp_connection_state_t connection;
	char host[RABBIT_HOST_SIZE];
	char error[RABBIT_ERROR_SIZE];
	char url[];
};

void rabbit_opening_abandon(struct rabbit_opening *opening)
{
	if (!opening || atomic_fetch_sub(&opening->shares, 1) > 1)
		return;
	rabbit_connection_close(opening->connection);
	if (opening->fd >= 0)
		close(opening->fd);
	free(opening);
}

/* A prefetch that is not global applies to each consumer that starts after it. */
static int source_consume(amqp_connection_state_t connection, const struct rabbit_source *source,
			  int64_t deadline_ms, char error[RABBIT_ERROR_SIZE])
{
	amqp_bytes_t queue = amqp_cstring_bytes(source->queue);

	rabbit_time_left_set(connection, deadline_ms);
	amqp_basic_qos(connection, RABBIT_CHANNEL, 0, source->prefetch, 0);
	if (rabbit_reply_check(amqp_get_rpc_reply(connection), error))
		return -1;
	rabbit_time_left_set(connection, deadline_ms);
	amqp_basic_consume(connection, RABBIT_CHANNEL, queue, queue, 0, source->prefetch == 0, 0,
			   amqp_empty_table);
	return rabbit_reply_check(amqp_get_rpc_reply(connection), error);
}

/* On the new connection to a host. */
static int host_begin(void *context, amqp_connection_state_t connection, const char *host,
		      int64_t deadline_ms, char error[RABBIT_ERROR_SIZE])
{
	struct rabbit_opening *opening = context;
	const struct declaring declaring = { .connection = connection,
					     .confirms = opening->plan.confirms,
					     .deadline_ms = deadline_ms,
					     .error = error };

	snprintf(opening->host, sizeof(opening->host), "%s", host);
	if (!opening->plan.passive && declaring_run(&declaring))
		return -1;
	for (size_t i = 0; i < opening->plan.sources_n; i++)
		if (source_consume(connection, &opening->plan.sources[i], deadline_ms, error))
			return -1;
	return 0;
}

static void *run(void *data)
{
	struct rabbit_opening *opening = data;

	opening->connection = rabbit_connection_begin(opening->url, opening->plan.confirms,
						      host_begin, opening, opening->error);
	wake_send(opening->fd);
	rabbit_opening_abandon(opening);
	return NULL;
}

struct rabbit_opening *rabbit_opening_begin(const char *url, const struct rabbit_opening_plan *plan)
{
	struct rabbit_opening *opening = checked(calloc(1, sizeof(*opening) + strlen(url) + 1));
	int trouble;

	strcpy(opening->url, url);
	opening->shares = 2;
	opening->plan = *plan;
	opening->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	trouble = opening->fd < 0 ? errno : thread_detach(run, opening);
	if (trouble) {
		opening->shares = 1;
		snprintf(opening->error, sizeof(opening->error), "it cannot be opened: %s",
			 strerror(trouble));
	}
	return opening;
}

int rabbit_opening_fd(const struct rabbit_opening *opening)
{
	return opening->fd;
}

int rabbit_opening_done(const struct rabbit_opening *opening)
{
	return opening->shares == 1;
}

amqp_connection_state_t rabbit_opening_take(struct rabbit_opening *opening,
					    char host[RABBIT_HOST_SIZE],
					    char error[RABBIT_ERROR_SIZE])
{
	amqp_connection_state_t connection = opening->connection;

	check(rabbit_opening_done(opening));
	memcpy(host, opening->host, RABBIT_HOST_SIZE);
	memcpy(error, opening->error, RABBIT_ERROR_SIZE);
	opening->connection = NULL;
	rabbit_opening_abandon(opening);
	return connection;
}
