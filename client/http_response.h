/*
 * One reply of the gateway over HTTP as it arrives in pieces. http-parser reads the protocol.
 * Refused is what the gateway does not send: other versions than 1.1, interim replies, chunks, and
 * a reply without its length. No I/O.
 */
#pragma once

#include <http_parser.h>
#include <stddef.h>

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
