/*
 * Each look at the dead-letter queue takes its messages and returns them, which RabbitMQ counts as
 * deliveries, and drops a message at the delivery limit that a policy may set. Before that the
 * messages are published to the queue again, in their order, with a count of 0.
 */
#ifndef CTL_DEAD_REFRESH_H
#define CTL_DEAD_REFRESH_H

#define DEAD_REFRESH_DELIVERIES 8 /* of a message: then it is time */

/* Any failure ends the process; after it a message may be in the queue twice. */
void dead_refresh(const char *url);

#endif
