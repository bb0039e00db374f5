/*
 * The dead-letter queue as couponctl reads it: one message after the other, oldest first. What is
 * taken and not removed goes back when the queue is closed or the process ends. RabbitMQ puts it
 * behind those that were not taken: only when all were taken, and they are at most DEAD_ORDER_MAX,
 * is the order the same again. Trouble ends the process with a sentence and exit status 1.
 */
#ifndef CTL_DEAD_QUEUE_H
#define CTL_DEAD_QUEUE_H

#include <amqp.h>
#include <amqp_framing.h>
#include <stdint.h>

#define DEAD_ORDER_MAX 1000 /* of more messages the order is not kept: it would take too long */

struct dead_queue;

struct dead_queue *dead_queue_open(const char *url);
/* Comes back when RabbitMQ has done the removals. */
void dead_queue_close(struct dead_queue *queue);

/*
 * How many messages nobody held when it was opened: a bound for whoever takes all, since new ones
 * may come meanwhile.
 */
int64_t dead_queue_length(const struct dead_queue *queue);

/* The next message, to be ended with amqp_destroy_message(). 1, or 0 when there is none. */
int dead_queue_take(struct dead_queue *queue, amqp_message_t *message, uint64_t *tag);

int64_t dead_queue_held(const struct dead_queue *queue); /* messages taken and not removed */

void dead_queue_remove(struct dead_queue *queue, uint64_t tag);

#endif
