/*
 * Opens an AMQP connection in a thread of its own: connecting, logging in and declaring take as
 * many round trips as they take, and nothing else waits for them.
 */
#ifndef COMMON_RABBIT_LINK_OPENING_H
#define COMMON_RABBIT_LINK_OPENING_H

#include "common/rabbit/connection.h"

#include <stdint.h>

struct link_opening;

/*
 * Begins. `prefetch` is 0, or the connection also consumes AMQP_QUEUE with it, under
 * LINK_CONSUMER_TAG.
 */
#define LINK_CONSUMER_TAG "coupon-worker"
struct link_opening *link_opening_begin(const char *url, int confirms, uint16_t prefetch);

int link_opening_fd(const struct link_opening *opening); /* can be read once it is over */
int link_opening_done(const struct link_opening *opening);
/*
 * Once it is over: the connection, which is the caller's, or NULL with a sentence in `error`. Frees
 * `opening`.
 */
amqp_connection_state_t link_opening_take(struct link_opening *opening,
					  char error[AMQP_LINK_ERROR_SIZE]);
/*
 * Never mind: waits for nothing. The connection is closed as soon as it is there. NULL is allowed.
 */
void link_opening_abandon(struct link_opening *opening);

#endif
