/*
 * One connection to the gateway and its two buffers. The caller maintains the state.
 *
 *	in:   [ lines taken | whole lines … | a part ]      in_at, in_len
 *	out:  [ sent | to be sent ]                         out_at, out_len
 */
#ifndef CTL_CLIENT_CONNECTION_H
#define CTL_CLIENT_CONNECTION_H

#include "common/backoff.h"

#include <stddef.h>
#include <stdint.h>

#define CLIENT_IN_BYTES 65536

enum client_connection_state { CLIENT_CLOSED, CLIENT_CONNECTING, CLIENT_CONNECTED };

struct client_connection {
	enum client_connection_state state;
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

void client_connection_init(struct client_connection *c, size_t out_bytes);
void client_connection_fini(struct client_connection *c);

/* Closes the socket and empties the buffers. */
void client_connection_clear(struct client_connection *c);

/* Sends as much as the kernel takes. NULL, or why the connection is broken. */
const char *client_connection_send(struct client_connection *c);

/* Receives the available bytes. NULL, or why the connection has ended. */
const char *client_connection_receive(struct client_connection *c);

/*
 * The next complete line without its line end, valid until the next receive. NULL: there is none
 * yet. A line that does not fit into the buffer is returned in pieces.
 */
const char *client_connection_line(struct client_connection *c, size_t *len);

#endif
