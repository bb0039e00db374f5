/*
 * The dead-letter queue, read one message after the other, the oldest first. Messages that are
 * taken and not removed return when the queue is closed or the process ends. RabbitMQ puts them
 * behind those that were not taken, so the order is kept only when all were taken, and they are at
 * most DEAD_ORDER_MAX. An error ends the process with exit status 1.
 */
#ifndef CTL_DEAD_QUEUE_H
#define CTL_DEAD_QUEUE_H

#include "common/rabbit/connection.h"

#include <stdint.h>

#define DEAD_ORDER_MAX 1000 /* with more messages keeping the order would take too long */

struct dead_queue;

struct dead_queue *dead_queue_open(const char *url);
/* Returns when RabbitMQ has done the removals. */
void dead_queue_close(struct dead_queue *queue);

/* The number of ready messages when it was opened. New ones may arrive later. */
int64_t dead_queue_length(const struct dead_queue *queue);

/* Takes the next message, for amqp_destroy_message(). 1, or 0 when there is none. */
int dead_queue_take(struct dead_queue *queue, amqp_message_t *message, uint64_t *tag);

int64_t dead_queue_held(const struct dead_queue *queue); /* messages taken and not removed */

void dead_queue_remove(struct dead_queue *queue, uint64_t tag);

#endif
