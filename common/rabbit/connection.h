/*
 * A connection to RabbitMQ as every part of couponmq wants it: bounded in time, one channel,
 * heartbeats, and the client capabilities asked for (connection.blocked, consumer_cancel_notify,
 * basic.nack, publisher_confirms). A connection belongs to one thread.
 */
#ifndef COMMON_RABBIT_CONNECTION_H
#define COMMON_RABBIT_CONNECTION_H

#include <amqp.h>
#include <stddef.h>

#define AMQP_LINK_CHANNEL 1
/* connect, handshake, each RPC; opening in all, and declaring in all, twice that */
#define AMQP_LINK_TIMEOUT_S 5
#define AMQP_LINK_HEARTBEAT_S 10 /* asked for; the broker may choose less */
#define AMQP_LINK_ERROR_SIZE 256

#define AMQP_EXCHANGE "coupon.topic"
#define AMQP_ROUTING_KEY "coupon.receive"
#define AMQP_QUEUE "coupon.receive.queue"
/* Receives of coupons that are locked at present; published by workers. */
#define AMQP_PARKED_KEY "coupon.parked"
#define AMQP_PARKED_QUEUE "coupon.receive.parked"
#define AMQP_DEAD_EXCHANGE "coupon.dlx"
#define AMQP_DEAD_QUEUE "coupon.receive.dead"
#define AMQP_DEAD_REASON "x-couponmq-reason" /* header of a dead-lettered message */

/*
 * Connects, logs in and opens the channel, with confirms when `confirms` is set. NULL with a
 * sentence in `error`.
 */
amqp_connection_state_t amqp_link_open(const char *url, int confirms,
				       char error[AMQP_LINK_ERROR_SIZE]);

/*
 * Declares the exchanges, the quorum queues and their bindings; all idempotent. 0, or -1 with
 * `error`. One that is there but is not declared as ours, a classic queue for instance, is logged
 * as an error besides (queue_differs): it does not keep what we promise.
 */
int amqp_link_declare(amqp_connection_state_t link, char error[AMQP_LINK_ERROR_SIZE]);

/* Sends connection.close without waiting long, then frees. NULL is allowed. */
void amqp_link_close(amqp_connection_state_t link);
/* Frees without a word to the peer: for a connection that is broken. NULL is allowed. */
void amqp_link_drop(amqp_connection_state_t link);

/* The last RPC's outcome: 0, or -1 with a sentence in `error`. */
int amqp_link_result(amqp_rpc_reply_t reply, char error[AMQP_LINK_ERROR_SIZE]);

#endif
