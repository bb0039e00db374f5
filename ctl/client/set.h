/*
 * Connections to the gateway in one epoll set. A connection that ends is opened again, with
 * backoff. The owner writes request lines to `out` of a connection and counts its unanswered
 * requests in `open`:
 *
 *	          ┌─ fill ─▶ out ─▶ client_set_send() ─┐
 *	owner ────┤                                    ├── a connection
 *	          └─ line ◀─ in ◀──────────────────────┘
 */
#ifndef CTL_CLIENT_SET_H
#define CTL_CLIENT_SET_H

#include "ctl/client/connection.h"
#include "ctl/gateway.h"

struct client_owner {
	void *context;
	/* Connection `i` was opened, has sent all its output, or has received replies. */
	void (*fill)(void *context, uint32_t i);
	/* A reply line without its end. */
	void (*line)(void *context, uint32_t i, const char *line, size_t len);
	/* Connection `i`, which was open, has ended: the outcome of its requests is unknown. */
	void (*lost)(void *context, uint32_t i);
};

struct client_set {
	struct client_owner owner;
	const struct gateway_address *address;
	struct client_connection *list;
	uint32_t n, open_n, closed_n;
	uint32_t disconnections;
	char error[160]; /* why the last connection ended or could not be opened; "": none did */
	int epoll;
	int64_t begin_us; /* on the monotonic clock */
	int64_t now_us;   /* from begin_us */
};

/* `address` is lent. `out_bytes`: room for the request lines of one connection. */
void client_set_init(struct client_set *set, const struct client_owner *owner,
		     const struct gateway_address *address, uint32_t n, size_t out_bytes);
void client_set_fini(struct client_set *set);

/* Sets the clock to 0. */
void client_set_start(struct client_set *set);

/* Reads the clock. */
void client_set_now(struct client_set *set);

/* Opens the closed connections whose time has come. */
void client_set_connect(struct client_set *set);

/*
 * Waits for events of connections, at most so long, and handles them. An event of another
 * descriptor in the epoll set, with data.u32 UINT32_MAX, only ends the wait.
 */
void client_set_wait(struct client_set *set, int timeout_ms);

/* Sends the output of connection `i`, as much as the kernel takes. */
void client_set_send(struct client_set *set, uint32_t i);

/* Ends connection `i`, which is open. */
void client_set_close(struct client_set *set, uint32_t i, const char *why);

#endif
