/*
 * The exchanges, the queues and their bindings, and the one policy for a queue that exists with
 * other arguments than ours, for instance since before an upgrade of the broker: it is used as it
 * is, and reported in the log (queue_differs), in `/readyz` and in a metric until couponctl queue
 * move has replaced it.
 *
 * No queue has a delivery limit: the death of a worker counts as a delivery of all its prefetched
 * messages, and what exceeds the limit is dropped. RabbitMQ 4 has a limit of 20 by default, and
 * -1 switches it off. On RabbitMQ 3 there is none by default, and a negative one acts as 0: there
 * the argument is left out.
 */
#pragma once

#include "common/rabbit/connection.h"

#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <stdint.h>

enum rabbit_queue {
	RABBIT_QUEUE_RECEIVES,
	RABBIT_QUEUE_PARKED,
	RABBIT_QUEUE_USES,
	RABBIT_QUEUE_DEAD,
	RABBIT_QUEUES_N
};

/*
 * The property `type` of a message that couponctl queue move sends to the consumers of a queue: the
 * queue is about to be deleted. They return everything they hold of it, and stay away for a time.
 */
#define RABBIT_LEAVE_TYPE "couponmq.leave"
#define RABBIT_LEAVE_MS 4000

struct rabbit_queue_place {
	const char *name;
	const char *exchange;
	const char *routing_key;
};

extern const struct rabbit_queue_place rabbit_queue_places[RABBIT_QUEUES_N];

/*
 * Declares and binds all of it, as far as that is necessary, until `deadline_ms`. 0, or -1 with
 * `error`.
 */
int rabbit_topology_declare(amqp_connection_state_t connection, int confirms, int64_t deadline_ms,
			    char error[RABBIT_ERROR_SIZE]);
/*
 * Declares and binds all of it without waiting: should the broker refuse, it closes the channel.
 * Returns a status of the library.
 */
int rabbit_topology_declare_send(amqp_connection_state_t connection);

/*
 * Declares one quorum queue with our arguments. 0; 1 when it exists with others, with a sentence
 * in `error`, and the channel is open again; -1 with `error`.
 */
int rabbit_queue_declare(amqp_connection_state_t connection, int confirms, const char *name,
			 char error[RABBIT_ERROR_SIZE]);

/*
 * The number of queues that differed when this process last declared them, and a sentence about
 * each. Any thread.
 */
int rabbit_topology_differing_n(void);
void rabbit_topology_warnings(cJSON *array);

/*
 * What RabbitMQ tells about the queues of a cluster: on which nodes they have members, which of
 * them leads, and how long they are. AMQP tells only the length, so the management API, a plugin,
 * is asked on the nodes of COUPON_RABBITMQ_API.
 */

/*
 * RabbitMQ gives this many members to a queue that is declared on a cluster with at least as many
 * nodes.
 */
#define RABBIT_MEMBERS_WANTED 3

/*
 * Asks the nodes in random order, until one answers. NULL with a sentence, or for cJSON_Delete():
 *
 *	{"nodes":["rabbit@r1",…],"wanted":3,"queues":[{"name":"coupon.receive.queue",
 *	 "members":["rabbit@r1",…],"online":["rabbit@r1",…],"leader":"rabbit@r1","messages":7},…]}
 *
 * `leader` is null while there is none. `amqp_url` names the vhost. Ends early when `stop` is set,
 * unless it is NULL.
 */
cJSON *rabbit_cluster_read(const char *api_url, const char *amqp_url, const atomic_int *stop,
			   char error[RABBIT_ERROR_SIZE]);

/*
 * What the nodes of RabbitMQ tell about themselves, of which one is asked: an array, each
 *
 *	{"name":"rabbit@r1","running":true,"disk_free":1,"disk_free_limit":1,
 *	 "disk_free_alarm":false,"mem_alarm":false,"fd_used":1,"fd_total":1}
 *
 * of which a version may leave out numbers. NULL with a sentence, or for cJSON_Delete().
 */
cJSON *rabbit_nodes_read(const char *api_url, char error[RABBIT_ERROR_SIZE]);

/* Finds a queue, or NULL; also NULL when `cluster` is NULL. */
const cJSON *rabbit_cluster_queue(const cJSON *cluster, const char *name);

/* The length of the shortest `list`, "members" or "online", of all queues. */
int rabbit_cluster_least(const cJSON *cluster, const char *list);

/*
 * Appends a sentence for each queue with fewer members than wanted, or whose members are not all
 * online, with the command that mends it.
 */
void rabbit_cluster_warnings(const cJSON *cluster, cJSON *array);
