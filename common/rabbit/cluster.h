/*
 * What RabbitMQ tells about the queues of a cluster: on which nodes they have members, which of
 * them leads, and how long they are. AMQP tells only the length, so the management API, a plugin,
 * is asked on the nodes of COUPON_RABBITMQ_API.
 */
#pragma once

#include "common/rabbit/connection.h"

#include <cjson/cJSON.h>
#include <stdatomic.h>

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

/* Finds a queue, or NULL; also NULL when `cluster` is NULL. */
const cJSON *rabbit_cluster_queue(const cJSON *cluster, const char *name);

/* The length of the shortest `list`, "members" or "online", of all queues. */
int rabbit_cluster_least(const cJSON *cluster, const char *list);

/*
 * Appends a sentence for each queue with fewer members than wanted, or whose members are not all
 * online, with the command that mends it.
 */
void rabbit_cluster_warnings(const cJSON *cluster, cJSON *array);
