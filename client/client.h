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

#include <http_parser.h>
#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Where a gateway listens. */

#define GATEWAY_KEY_MAX 4096 /* bytes of COUPON_GATEWAY_KEY */

/*
 * COUPON_LISTEN: host:port, or /path or unix:path of a Unix socket; or COUPON_HTTP_LISTEN. And
 * COUPON_TLS_CA and COUPON_GATEWAY_KEY.
 */
struct gateway_address {
	struct sockaddr_storage address;
	socklen_t len;
	int is_http;
	SSL_CTX *tls;    /* NULL: no TLS */
	char host[256];  /* that the gateway has to be, under TLS; of a Unix socket "" */
	const char *key; /* an API key or a token, of the settings; "": none */
};

/*
 * Resolves COUPON_LISTEN, or with `is_http` COUPON_HTTP_LISTEN. An invalid setting ends the
 * process, with the exit status `away` if the host is not known.
 */
void gateway_address_read(struct gateway_address *address, const struct config *config, int is_http,
			  int away);

/*
 * Sends one request line and returns the reply line, both without their line end; the caller frees
 * it. Ends the process when there is no reply: with `unanswered`, or with `away` if the request was
 * not sent, but with 1 if the gateway refuses COUPON_GATEWAY_KEY or the settings are invalid.
 */
char *gateway_exchange(const struct config *config, const char *request, int away, int unanswered);

/*
 * One reply of the gateway over HTTP as it arrives in pieces. http-parser reads the protocol.
 * Refused is what the gateway does not send: other versions than 1.1, interim replies, chunks, and
 * a reply without its length. No I/O.
 */

/* All zero but `most` at first. */
struct http_response {
	http_parser parser; /* its status_code is that of a complete reply */
	char *body; /* what has arrived of it; NULL: nothing ever has. The owner frees it at last */
	size_t len, room;
	size_t most; /* a longer body is refused; set by the owner */
	int is_complete;
};

/* Before each reply of a connection. */
void http_response_reset(struct http_response *reply);

/*
 * Takes bytes until the reply is complete. Returns how many; the others belong to the next one. -1:
 * it is no reply, and nothing more of the connection can be read.
 */
long http_response_feed(struct http_response *reply, const char *bytes, size_t len);

/* The length of the body of a complete reply, without line ends at its end. */
size_t http_response_text_len(const struct http_response *reply);

/* Where there is a key, lines wait until the gateway knows it; requests over HTTP carry it. */
enum client_state {
	CLIENT_CLOSED,
	CLIENT_CONNECTING,
	CLIENT_SECURING,
	CLIENT_PRESENTING,
	CLIENT_CONNECTED
};

/*
 *	received ─▶ whole lines ─▶ the owner
 *	      └─▶ part: what came of the next line           part_len
 *	out:  [ sent | to be sent ]                          out_at, out_len
 *
 * Over HTTP the body of a reply takes the place of a line, and `http` that of `part`.
 */
struct client_connection {
	enum client_state state;
	struct stream stream;
	int want_write; /* output is left: waiting for EPOLLOUT */
	uint32_t open;  /* unanswered requests */
	char *out;
	size_t out_at, out_len;
	char *part;
	size_t part_len, part_room;
	struct http_response http;
	struct backoff backoff;
	int64_t retry_us; /* closed: when to connect again */
	int64_t begun_us; /* when it began to connect */
};

/* The fields of a reply line, valid until the next one. */
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
	/*
	 * Connection `i`, which was open, has ended: the outcome of its requests is unknown. May be
	 * NULL.
	 */
	void (*lost)(void *context, uint32_t i);
	/* Connection `i` could not be opened. May be NULL. */
	void (*refused)(void *context, uint32_t i);
};

struct client_form {
	const struct gateway_address *address; /* lent */
	uint32_t n;
	size_t out_bytes; /* room for the requests of one connection */
	/* client_connect() alone opens connections: each is that of somebody who comes and goes. */
	int on_demand;
	uint32_t sources; /* they come from so many addresses, in turn; 0: of the kernel's choice */
};

struct client {
	struct client_owner owner;
	struct client_form form;
	struct json_arena *arena;
	struct client_connection *list;
	uint32_t n, open_n, closed_n;
	uint32_t disconnections;
	/* Why the last connection ended or could not be opened; "": none did. */
	char error[160];
	/* Its errno; EACCES: the key was refused. 0: the gateway or client_close() has ended it. */
	int error_number;
	uint32_t source_next; /* of sources */
	char *received;       /* STREAM_BYTES */
	int epoll;
	int64_t begin_us; /* on the monotonic clock */
	int64_t now_us;   /* from begin_us */
};

void client_init(struct client *client, const struct client_owner *owner,
		 const struct client_form *form);
void client_fini(struct client *client);

/* Sets the clock to 0. */
void client_start(struct client *client);

/*
 * Opens the closed connections whose time has come, unless that is done on demand, waits for events
 * of connections, at most so long, and handles them.
 */
void client_wait(struct client *client, int64_t timeout_us);

/* Sends the output of connection `i`, as much as the kernel takes. */
void client_send(struct client *client, uint32_t i);

/* Ends connection `i`, which is open: its requests are lost. */
void client_close(struct client *client, uint32_t i, const char *why);

/*
 * Closes the connections that began to open before this time and are not open yet; the owner is
 * told `refused`. They have no requests.
 */
void client_close_unopened(struct client *client, int64_t before_us);

/* On demand. Not from a function of the owner. */
void client_connect(struct client *client, uint32_t i);
/* Closes connection `i`, in whatever state, and tells nobody: who it belonged to has gone. */
void client_end(struct client *client, uint32_t i);

/*
 * SIGINT and SIGTERM ask the program to stop, from client_stop_watch(1) to client_stop_watch(0);
 * the second one ends it.
 */
void client_stop_watch(int on);
int client_stop_asked(void);

/* `line` has no line end. 0, or -1 when it is not a reply. */
int client_reply_read(struct json_arena *arena, const char *line, size_t len,
		      struct client_reply *reply);
