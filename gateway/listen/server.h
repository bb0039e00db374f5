/*
 * The socket API's connections: lines in, reply lines out, in the order of completion. One event
 * loop's.
 *
 * A connection may be gone before its requests are answered; it is freed when the last one is. A
 * client that does not read its replies is cut off at output_limit_bytes, one that is idle is
 * closed, and neither disturbs another.
 */
#ifndef GATEWAY_LISTEN_SERVER_H
#define GATEWAY_LISTEN_SERVER_H

#include "common/config.h"
#include "gateway/listen/intake.h"

#include <event2/event.h>

struct server;

struct server *server_new(struct event_base *base, const struct config *config,
			  struct intake *intake);
/* Every request must have been answered. */
void server_free(struct server *server);

void server_listen(struct server *server, int fd); /* a bound socket, which stays the caller's */
void server_stop(struct server *server);           /* accepts and reads no more */
size_t server_unsent_bytes(
	const struct server *server); /* replies that are not yet in the kernel */

#endif
