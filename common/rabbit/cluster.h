/*
 * What RabbitMQ tells about the queues of a cluster: on which nodes they have members, which of
 * them leads, and how long they are. AMQP tells none of it but the length: the management API is
 * asked, a plugin, on the nodes of COUPON_RABBITMQ_API.
 */
#pragma once

#include "common/rabbit/connection.h"

#include <cjson/cJSON.h>
#include <stdatomic.h>

/*
 * RabbitMQ gives so many members to a queue that is declared on a cluster of as many nodes or more:
 * with fewer one is missing.
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

/* One of the queues, or NULL; of no cluster too. */
const cJSON *rabbit_cluster_queue(const cJSON *cluster, const char *name);

/* The least of all queues: how many members they have, or how many of them are online. */
int rabbit_cluster_least(const cJSON *cluster, const char *list);

/*
 * Appends a sentence for each queue with fewer members than wanted, or whose members are not all
 * online, with the command that mends it.
 */
void rabbit_cluster_warnings(const cJSON *cluster, cJSON *array);
