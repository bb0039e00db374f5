/*
 * A connection to RabbitMQ: bounded in time, one channel, heartbeats, and the client capabilities
 * that couponmq needs (connection.blocked, consumer_cancel_notify, basic.nack, publisher_confirms).
 * Every call blocks. A connection belongs to one thread.
 */
#pragma once

#include "common/rabbit/url.h"

#include <stdint.h>

#define RABBIT_CHANNEL 1
/* to connect and log in, each RPC; opening in all, with what is declared then, twice that */
#define RABBIT_TIMEOUT_S 5
/*
 * Where there are several hosts, opening in all: then the next one. A queue whose leader is lost
 * may not answer at all what was asked before another leads.
 */
#define RABBIT_CLUSTER_TIMEOUT_S 2
/*
 * The client's proposal; the broker may choose less. On a connection on which nothing else is sent
 * a machine that is deaf is noticed so much later than after SILENCE_MS.
 */
#define RABBIT_HEARTBEAT_S 3

#define AMQP_EXCHANGE "coupon.topic"
#define AMQP_ROUTING_KEY "coupon.receive"
#define AMQP_QUEUE "coupon.receive.queue"
/* Receives of coupons that are locked at present; published by workers. */
#define AMQP_PARKED_KEY "coupon.parked"
#define AMQP_PARKED_QUEUE "coupon.receive.parked"
/* Uses of receives (common/message/use.h), also as dead letters. */
#define AMQP_USE_KEY "coupon.use"
#define AMQP_USE_QUEUE "coupon.use.queue"
#define AMQP_USE_TYPE "couponmq.use" /* the property `type` of such a message */
#define AMQP_DEAD_EXCHANGE "coupon.dlx"
#define AMQP_DEAD_QUEUE "coupon.receive.dead"
/* Events, for other systems; who may read it can read no receives. */
#define AMQP_EVENT_EXCHANGE "coupon.event"
#define AMQP_MOVING_SUFFIX ".moving" /* of the name of a queue during couponctl queue move */
#define AMQP_DEAD_REASON "x-couponmq-reason" /* header of a dead-lettered message */

/*
 * Connects to one of the hosts, with amqps:// over TLS by common/trust.h, logs in and opens the
 * channel, with confirms when `confirms` is set. The hosts are tried in random order, each once.
 * NULL with a sentence in `error`, which names each of them.
 */
amqp_connection_state_t rabbit_connection_open(const char *url, int confirms,
					       char error[RABBIT_ERROR_SIZE]);

/*
 * What follows on a new connection, to `host`, with a port, until `deadline_ms`. 0, or -1 with a
 * sentence: then the next host is tried.
 */
typedef int rabbit_begin_fn(void *context, amqp_connection_state_t connection, const char *host,
			    int64_t deadline_ms, char error[RABBIT_ERROR_SIZE]);

/* As rabbit_connection_open(), where `begin` must succeed as well; NULL: nothing follows. */
amqp_connection_state_t rabbit_connection_begin(const char *url, int confirms,
						rabbit_begin_fn *begin, void *context,
						char error[RABBIT_ERROR_SIZE]);

/*
 * Opens the channel again after the broker has closed it (the reply of an RPC says so), in the time
 * that is left until `deadline_ms`. 0, or -1 with `error`.
 */
int rabbit_channel_reopen(amqp_connection_state_t connection, int confirms, int64_t deadline_ms,
			  char error[RABBIT_ERROR_SIZE]);

/* The next RPC may take the rest of the time for all of them. */
void rabbit_time_left_set(amqp_connection_state_t connection, int64_t deadline_ms);
/* Each RPC may take RABBIT_TIMEOUT_S again. */
void rabbit_time_restore(amqp_connection_state_t connection);

/* What a status of the library means, at once after the call of this thread that returned it. */
const char *rabbit_status_text(int status);

int rabbit_text_is(amqp_bytes_t bytes, const char *text);
/* The value of this name in a table, or NULL. */
const amqp_field_value_t *rabbit_table_find(const amqp_table_t *table, const char *name);

/*
 * The major version that a broker states about itself; 0 if the broker is not a RabbitMQ or states
 * no version.
 */
int rabbit_server_major(amqp_connection_state_t connection);

/*
 * Sends connection.close without waiting long, then frees. NULL is allowed. For a connection that
 * is broken there is amqp_destroy_connection().
 */
void rabbit_connection_close(amqp_connection_state_t connection);

/* The outcome of an RPC: 0, or -1 with a sentence in `error`. */
int rabbit_reply_check(amqp_rpc_reply_t reply, char error[RABBIT_ERROR_SIZE]);
/* The code with which the broker closed the channel instead of a reply; 0: it did not. */
int rabbit_reply_code(amqp_rpc_reply_t reply);

/*
 * Ends library calls that hang. librabbitmq may block in a write for as long as the peer leaves the
 * socket full; the watchdog's thread then shuts the socket down, and the call returns with an
 * error. One thread watches all connections of the process.
 */

#define WATCHDOG_CALL_MS 8000 /* no call may take longer */

struct watch;

/*
 * Any thread. Watches the socket `fd` until watch_free(); the first watch starts the thread.
 */
struct watch *watch_new(int fd);
void watch_free(struct watch *watch); /* NULL is allowed */

/* Around each library call that may block; by the thread that owns the watch. */
void watch_begin(struct watch *watch);
int watch_end(struct watch *watch); /* 1 when the watchdog has ended this call */

/*
 * Any thread. Shuts every watched socket down, so that calls in progress return. For a process that
 * stops without waiting for the broker.
 */
void watch_cut_all(void);
