/*
 * One reply of the gateway over HTTP as it arrives in pieces. http-parser reads the protocol.
 * Refused is what the gateway does not send: other versions than 1.1, interim replies, chunks, and
 * a reply without its length. No I/O.
 */
#pragma once

#include <http_parser.h>
#include <stddef.h>

struct http_response {
	http_parser parser;
	char *body; /* what has arrived of it; NULL: nothing ever has */
	size_t len, room;
	size_t most; /* a longer body is refused */
	int is_complete;
};

void http_response_init(struct http_response *reply, size_t most);
void http_response_fini(struct http_response *reply);
/* Before the next reply of a connection, or the first of another one. */
void http_response_reset(struct http_response *reply);

/*
 * Takes bytes until the reply is complete. Returns how many; the others belong to the next one. -1:
 * it is no reply, and nothing more of the connection can be read.
 */
long http_response_feed(struct http_response *reply, const char *bytes, size_t len);

/* The status of a complete reply, and the length of its body without white space at its end. */
int http_response_status(const struct http_response *reply);
size_t http_response_text_len(const struct http_response *reply);
