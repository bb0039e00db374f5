/*
 * Writes to a socket at once what the kernel takes, and the rest when it is writable again. Belongs
 * to one event loop.
 */
#ifndef GATEWAY_LISTEN_HTTP_OUTPUT_H
#define GATEWAY_LISTEN_HTTP_OUTPUT_H

#include "common/program/config.h"
#include "gateway/listen/intake.h"

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

/* The rest is written (0), or the connection is broken (-1). */
typedef void http_output_fn(void *context, int rc);

struct http_output {
	int fd;
	struct event *writable; /* pending while something is unsent */
	struct evbuffer *unsent;
	http_output_fn *done;
	void *context;
};

/* The socket stays the caller's. */
void http_output_init(struct http_output *output, struct event_base *base, int fd,
		      http_output_fn *done, void *context);
void http_output_fini(struct http_output *output);

/*
 * Nothing may be unsent. Returns 0: all is written; 1: `done` will be called; -1: the connection is
 * broken.
 */
int http_output_write(struct http_output *output, const struct iovec *pieces, size_t n);
size_t http_output_length(const struct http_output *output); /* what is unsent */

/* The head of an HTTP reply. No I/O. */

#define HTTP_HEAD_SIZE 512

struct http_reply {
	int status;
	const char *type; /* of the body */
	const char *body;
	size_t len;
	const char *end;        /* bytes after the body, or "" */
	const char *extra;      /* one more header, without the end of its line, or NULL */
	int minor;              /* of the version 1.x */
	const char *connection; /* that header's value, or NULL */
};

/* Writes the head and the empty line, without a NUL, and returns the length. */
size_t http_head_write(const struct http_reply *reply, char out[HTTP_HEAD_SIZE]);

/*
 * The limits of all HTTP connections of an event loop: how many there are, how long each may wait
 * for its client, and how large their requests may be together.
 *
 * A connection counts with those of the socket API. Beyond their limit a few more are served, for
 * monitoring only.
 */

struct http_connection;

/* A connection, as the limits see it. */
struct http_member {
	struct http_connection *connection;
	TAILQ_ENTRY(http_member) next; /* while it waits */
	int64_t until_ms;              /* while it waits */
	size_t received;               /* bytes of its request so far */
	enum intake_room room;         /* other than INTAKE_ROOM: not counted by intake */
};

TAILQ_HEAD(http_member_queue, http_member);

struct http_limits {
	const struct config *config;
	struct intake *intake;
	/* Those that wait, by their end; those of the reserve have less time. */
	struct http_member_queue counted;
	struct http_member_queue reserve;
	size_t n;
	size_t reserve_n;
	size_t received; /* sum */
};

void http_limits_init(struct http_limits *limits, const struct config *config,
		      struct intake *intake);

/* Other than INTAKE_ROOM: it is one too many, and is to be refused. */
enum intake_room http_limits_enter(struct http_limits *limits, struct http_member *member,
				   struct client *client, int fd);
void http_limits_leave(struct http_limits *limits, struct http_member *member,
		       struct client *client);

/* It waits for its client from now on, and no more. */
void http_limits_wait(struct http_limits *limits, struct http_member *member);
void http_limits_wait_end(struct http_limits *limits, struct http_member *member);
/* One that has waited too long, or NULL; of all that wait at INT64_MAX. */
struct http_connection *http_limits_expired(struct http_limits *limits, int64_t now_ms);

void http_limits_received(struct http_limits *limits, struct http_member *member, size_t received);
/* How many bytes of `most` may be read at once. */
size_t http_limits_room(const struct http_limits *limits, size_t most);
/* Whether this request is refused because all together are too large. */
int http_limits_too_large(const struct http_limits *limits, const struct http_member *member);

#endif
