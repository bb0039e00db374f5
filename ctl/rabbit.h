/*
 * What an audit reads from RabbitMQ: how many messages are ready in the receive queue, the parking
 * queue and the dead-letter queue, and how many consumers there are. AMQP does not say how many
 * messages workers hold un-acked. It connects at the first look.
 */
#ifndef CTL_RABBIT_H
#define CTL_RABBIT_H

#include <stdint.h>

struct broker;

struct broker_look {
	int ok;            /* 0: it cannot be asked; broker_error() says why */
	int64_t ready;     /* in the receive and the parking queue; none where a queue is missing */
	int64_t consumers; /* of both: without any, nothing is un-acked */
	int64_t dead;      /* in the dead-letter queue */
};

struct broker *broker_new(const char *url);
void broker_free(struct broker *broker);
void broker_look(struct broker *broker, struct broker_look *look);
const char *broker_error(const struct broker *broker);

#endif
