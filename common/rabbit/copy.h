/*
 * The properties of a copy of a message: all that the message has, except what describes its
 * delivery, and the user, whom RabbitMQ would compare with the one that publishes the copy.
 */
#ifndef COMMON_RABBIT_COPY_H
#define COMMON_RABBIT_COPY_H

#include "common/rabbit/amqp.h"

#define RABBIT_COPY_HEADERS_MAX 64 /* further ones are dropped */

/* Valid as long as the properties of the message. */
struct rabbit_copy {
	amqp_basic_properties_t properties;
	amqp_table_entry_t headers[RABBIT_COPY_HEADERS_MAX];
};

void rabbit_copy_init(struct rabbit_copy *copy, const amqp_basic_properties_t *properties);

#endif
