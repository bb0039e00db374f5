/*
 * The numbers of ready messages and consumers of the queues. AMQP does not report the messages that
 * workers hold unacked. Connects at the first look.
 */
#ifndef CTL_RABBIT_H
#define CTL_RABBIT_H

#include <stdint.h>

struct broker;

struct broker_look {
	int ok;            /* 0: it cannot be queried; broker_error() has the reason */
	int64_t ready;     /* in the receive and the parking queue; none where a queue is missing */
	int64_t consumers; /* of both: with none, no message is unacked */
	int64_t dead;      /* in the dead-letter queue */
};

struct broker *broker_new(const char *url);
void broker_free(struct broker *broker);
void broker_look(struct broker *broker, struct broker_look *look);
const char *broker_error(const struct broker *broker);

#endif
