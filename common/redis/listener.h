/*
 * A connection to Redis that listens to one channel. What is published while it is not connected is
 * missed: who waits for a message asks for the state after each redis_listener_open(), and from
 * time to time. One thread.
 */
#ifndef COMMON_REDIS_LISTENER_H
#define COMMON_REDIS_LISTENER_H

#include <stdint.h>

struct redis_listener;

/* Does not connect. The channel is copied. A malformed URL ends the process. */
struct redis_listener *redis_listener_new(const char *url, const char *channel);
void redis_listener_free(struct redis_listener *listener); /* NULL is allowed */

/* Connects and subscribes, where it is not. 0, or -1. */
int redis_listener_open(struct redis_listener *listener);
/* Waits for a message, at most `timeout_ms`. 1: one came; 0: none; -1: the connection is lost. */
int redis_listener_wait(struct redis_listener *listener, int64_t timeout_ms);
#endif
