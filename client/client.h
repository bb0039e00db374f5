/*
 * Clients of the gateway's socket API: one request, or connections in one epoll set, for programs
 * that have many requests in flight. A connection that ends is opened again, with backoff. The
 * owner writes request lines to `out` of a connection and counts its unanswered requests in `open`:
 *
 *	          ┌─ fill ─▶ out ─▶ client_send() ─┐
 *	owner ────┤                                ├── a connection
 *	          └─ reply ◀─ in ◀─────────────────┘
 */
#pragma once

#include "common/backoff.h"
#include "common/message/json.h"
#include "common/program/config.h"
#include "common/serve/stream.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* COUPON_LISTEN: host:port, or /path or unix:path of a Unix socket; and COUPON_TLS_CA. */
struct gateway_address {
	struct sockaddr_storage address;
	socklen_t len;
	SSL_CTX *tls;   /* NULL: no TLS */
	char host[256]; /* that the gateway has to be, under TLS */
};

/* Resolves COUPON_LISTEN. An invalid setting ends the process. */
void gateway_address_read(struct gateway_address *address, const struct config *config);

/*
 * Sends one request line and returns the reply line, both without their line end; the caller frees
 * it. Ends the process when there is no reply.
 */
char *gateway_exchange(const struct config *config, const char *request);

enum client_state { CLIENT_CLOSED, CLIENT_CONNECTING, CLIENT_SECURING, CLIENT_CONNECTED };

/*
 *	in:   [ lines taken | whole lines … | a part ]      in_at, in_len
 *	out:  [ sent | to be sent ]                         out_at, out_len
 */
struct client_connection {
	enum client_state state;
	struct stream stream;
	int want_write; /* output is left: waiting for EPOLLOUT */
	uint32_t open;  /* unanswered requests */
	char *out;
	size_t out_at, out_len;
	char *in;
	size_t in_at, in_len;
	struct backoff backoff;
	int64_t retry_us; /* closed: when to connect again */
};

/* What a reply line has, until the next one. */
struct client_reply {
	int64_t request; /* the id; -1: it has none */
	int code;
	int64_t retry_after_ms; /* 0: it tells none */
	/* in the arena; NULL: none */
	const char *receive, *reason;
};

struct client_owner {
	void *context;
	/* Connection `i` was opened, has sent all its output, or has received replies. */
	void (*fill)(void *context, uint32_t i);
	/*
	 * A reply line without its end. One that is longer than the buffer comes in pieces. `reply`
	 * is NULL when it is no reply.
	 */
	void (*reply)(void *context, uint32_t i, const struct client_reply *reply, const char *line,
		      size_t len);
	/* Connection `i`, which was open, has ended: the outcome of its requests is unknown. */
	void (*lost)(void *context, uint32_t i);
};

struct client {
	struct client_owner owner;
	const struct gateway_address *address;
	struct json_arena *arena;
	struct client_connection *list;
	uint32_t n, open_n, closed_n;
	uint32_t disconnections;
	char error[160]; /* why the last connection ended or could not be opened; "": none did */
	int epoll;
	int64_t begin_us; /* on the monotonic clock */
	int64_t now_us;   /* from begin_us */
};

/* `address` is lent. `out_bytes`: room for the request lines of one connection. */
void client_init(struct client *client, const struct client_owner *owner,
		 const struct gateway_address *address, uint32_t n, size_t out_bytes);
void client_fini(struct client *client);

/* Sets the clock to 0. */
void client_start(struct client *client);

/*
 * Opens the closed connections whose time has come, waits for events of connections, at most so
 * long, and handles them.
 */
void client_wait(struct client *client, int64_t timeout_us);

/* Sends the output of connection `i`, as much as the kernel takes. */
void client_send(struct client *client, uint32_t i);

/* Ends connection `i`, which is open. */
void client_close(struct client *client, uint32_t i, const char *why);

/*
 * SIGINT and SIGTERM ask the program to stop, from client_stop_watch(1) to client_stop_watch(0);
 * the second one ends it.
 */
void client_stop_watch(int on);
int client_stop_asked(void);

/* `line` has no line end. 0, or -1 when it is not a reply. */
int client_reply_read(struct json_arena *arena, const char *line, size_t len,
		      struct client_reply *reply);
