/* The head of an HTTP reply. No I/O. */
#ifndef GATEWAY_LISTEN_HTTP_HEAD_H
#define GATEWAY_LISTEN_HTTP_HEAD_H

#include <stddef.h>

#define HTTP_HEAD_SIZE 512

struct http_head {
	int minor; /* of the version 1.x */
	int status;
	const char *type;       /* of the body */
	size_t length;          /* of the body */
	const char *connection; /* the header's value, or NULL */
	const char *extra;      /* one more header, without the end of its line, or NULL */
};

/* Writes the head and the empty line, without a NUL, and returns the length. */
size_t http_head_write(const struct http_head *head, char out[HTTP_HEAD_SIZE]);

#endif
