/*
 * Writes to a socket at once what the kernel takes, and the rest when it is writable again. Belongs
 * to one event loop.
 */
#ifndef GATEWAY_LISTEN_HTTP_OUTPUT_H
#define GATEWAY_LISTEN_HTTP_OUTPUT_H

#include <event2/event.h>
#include <stddef.h>
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

#endif
