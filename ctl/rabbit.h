/*
 * RabbitMQ as an audit asks it: how many messages are ready in the receive queue and in the
 * dead-letter queue, and how many consumers there are. What workers hold un-acked AMQP does not
 * tell. Asked for the first time only when something is overdue.
 */
#ifndef CTL_RABBIT_H
#define CTL_RABBIT_H

#include <stdint.h>

struct broker;

struct broker_look {
	int ok;            /* 0: it cannot be asked; broker_error() says why */
	int64_t ready;     /* in the receive queue; 0 when there is no such queue */
	int64_t consumers; /* of it: without any, nothing is un-acked */
	int64_t dead;      /* in the dead-letter queue */
};

struct broker *broker_new(const char *url);
void broker_free(struct broker *broker);
void broker_look(struct broker *broker, struct broker_look *look);
const char *broker_error(const struct broker *broker);

#endif
