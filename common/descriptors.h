/* File descriptors: some are kept for our own connections, whatever clients open. */
#ifndef COMMON_DESCRIPTORS_H
#define COMMON_DESCRIPTORS_H

/* for Redis, RabbitMQ and PostgreSQL; a quarter of the limit where that is less */
#define DESCRIPTORS_KEPT 64

/* Whether the next descriptor would be one of those. */
int descriptors_are_short(void);

#endif
