/*
 * One connection of a rush and its two buffers. The caller maintains the state.
 *
 *	in:   [ lines taken | whole lines … | a part ]      in_at, in_len
 *	out:  [ sent | to be sent ]                         out_at, out_len
 */
#ifndef CTL_RUSH_CONNECTION_H
#define CTL_RUSH_CONNECTION_H

#include "common/backoff.h"

#include <stddef.h>
#include <stdint.h>

#define RUSH_IN_BYTES 65536

enum rush_connection_state { RUSH_CLOSED, RUSH_CONNECTING, RUSH_CONNECTED };

struct rush_connection {
	enum rush_connection_state state;
	int fd;         /* -1: closed */
	int want_write; /* output is left: waiting for EPOLLOUT */
	uint32_t open;  /* unanswered requests */
	char *out;
	size_t out_at, out_len;
	char *in;
	size_t in_at, in_len;
	struct backoff backoff;
	int64_t retry_us; /* closed: when to connect again */
};

void rush_connection_init(struct rush_connection *c, size_t out_bytes);
void rush_connection_fini(struct rush_connection *c);

/* Closes the socket and empties the buffers. */
void rush_connection_clear(struct rush_connection *c);

/* Sends as much as the kernel takes. NULL, or why the connection is broken. */
const char *rush_connection_send(struct rush_connection *c);

/* Receives the available bytes. NULL, or why the connection has ended. */
const char *rush_connection_receive(struct rush_connection *c);

/*
 * The next complete line without its line end, valid until the next receive. NULL: there is none
 * yet. A line that does not fit into the buffer is returned in pieces.
 */
const char *rush_connection_line(struct rush_connection *c, size_t *len);

#endif
