/* What a broker states about itself when a connection is opened. */
#ifndef COMMON_RABBIT_SERVER_H
#define COMMON_RABBIT_SERVER_H

#include "common/rabbit/amqp.h"

/* The first number of its version; 0 if the broker is not a RabbitMQ or states no version. */
int rabbit_server_major(amqp_connection_state_t connection);

/* Logs its product and version; see common/log/service_version.h. */
void rabbit_server_log(amqp_connection_state_t connection);

#endif
