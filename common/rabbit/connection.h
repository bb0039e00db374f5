/*
 * Where RabbitMQ is, and a connection to it: bounded in time, one channel, heartbeats, and the
 * client capabilities that couponmq needs (connection.blocked, consumer_cancel_notify, basic.nack,
 * publisher_confirms). Every call blocks. A connection belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Newer versions have them in a folder and warn about the old names; 0.11 has only those. */
#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

/*
 * AMQP_URL: the hosts of a cluster, with the user, the password and the vhost that all have; and
 * COUPON_RABBITMQ_API, the same for the management API.
 */

#define RABBIT_URL_FORM                                                                     \
	"amqp://user:password@host:port/vhost, with host:port,host:port for a cluster, or " \
	"amqps://… with TLS"
#define RABBIT_ERROR_SIZE 1024 /* for a cluster it has what each host has answered */
#define RABBIT_API_FORM \
	"http://user:password@host:port, with host:port,host:port for a cluster, or https://…"
#define RABBIT_HOSTS_MAX 16
#define RABBIT_HOST_SIZE 280 /* rabbit_host_text(): a name has 253 characters at most */

struct rabbit_url {
	char *user, *password, *vhost; /* for all hosts; NULL: the library's default */
	size_t hosts_n;                /* at least one */
	struct rabbit_host {
		struct amqp_connection_info info; /* its strings are in `text` and above */
		char *text;
	} hosts[RABBIT_HOSTS_MAX];
};

/*
 * 0, or -1 with a sentence in `error`, which has no part of the URL, since that has a password. To
 * be followed by rabbit_url_fini() in both cases.
 */
int rabbit_url_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE]);
/* Parses COUPON_RABBITMQ_API as rabbit_url_parse(); `info.vhost` has no meaning. */
int rabbit_api_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE]);
void rabbit_url_fini(struct rabbit_url *url);

/* Puts the hosts in random order, so that the connections of many processes are spread. */
void rabbit_url_shuffle(struct rabbit_url *url);

/* host:port, or [address]:port. Returns `out`. */
char *rabbit_host_text(const struct rabbit_host *host, char out[RABBIT_HOST_SIZE]);

#define RABBIT_CHANNEL 1
/*
 * The limit for connecting and logging in, and for each RPC. Opening as a whole, with what is
 * declared then, may take twice that.
 */
#define RABBIT_TIMEOUT_S 5
/*
 * The limit for opening as a whole where there are several hosts; then the next one is tried. A
 * queue whose leader is lost may never answer what was asked before another member leads.
 */
#define RABBIT_CLUSTER_TIMEOUT_S 2
/*
 * The client's proposal; the broker may choose less. On an idle connection a machine that does not
 * answer is noticed this much later than after SILENCE_MS.
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
#define AMQP_MOVING_SUFFIX ".moving" /* ends the name of a queue during couponctl queue move */
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

/* Limits the next RPC to the time that is left until `deadline_ms`. */
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
