/*
 * One HTTP request as it arrives in pieces. http-parser reads the protocol. Checked here are the
 * limits of a request, and what the parser lets pass although another program, for instance a
 * proxy, may read it otherwise. No I/O.
 */
#pragma once

#include <http_parser.h>
#include <stddef.h>

/* Bytes that arrive in pieces, and a NUL after them; NULL: none have arrived. */
struct http_text {
	char *bytes;
	size_t len;
	size_t room;
};

/* TEXT_NAME: of the last header; those after it: the values of the headers with these names. */
enum http_text_of {
	TEXT_TARGET,
	TEXT_BODY,
	TEXT_NAME,
	TEXT_HOST,
	TEXT_ORIGIN,
	TEXT_CONTENT_TYPE,
	TEXT_CONTENT_ENCODING,
	TEXT_TRANSFER_ENCODING,
	TEXT_EXPECT,
	TEXT_NONE_MATCH,
	TEXT_ACCEPT,
	TEXT_KEY, /* Idempotency-Key */
	TEXT_REQUEST_ID,
	TEXT_TRACEPARENT,
	TEXT_AUTHORIZATION, /* a secret */
	TEXTS_N
};

/*
 * The target of a request: its path, of which operation it is, and its query, which becomes the
 * object that the socket API would get. All is in the text of the request, as it came.
 */
struct http_target {
	const char *path;
	const char *query;
	int has_fragment;
	const char *user; /* in the path, percent-encoded; NULL: none */
	size_t user_len;
	const char *code; /* in the same way */
	size_t code_len;
};

/* How a complete request is to be answered, as http.c finds out. Else all is 0. */
struct http_manner {
	const char *of;     /* the operation or page, for the log; NULL: none */
	const char *origin; /* of the page that may read the reply; NULL: none */
	size_t origin_len;
	int is_problem; /* what is not done, as RFC 9457 has it */
	int has_id;     /* the last one that was made */
};

struct http_request {
	http_parser parser;
	size_t body_limit;
	struct http_text texts[TEXTS_N];
	const char *unchecked; /* in the piece that is read: the bytes from here on are no body */
	int before;            /* the byte before them, or BODY_BEFORE */
	int hosts_n;
	int headers_n;
	int in_value;   /* of the last header */
	int has_head;   /* what is read now are no headers */
	unsigned seen;  /* by enum http_text_of: the headers that it has */
	unsigned twice; /* and those that it has more than once */
	struct http_manner reply;
	struct http_target target; /* its text is cut; .path NULL: it is not yet */
	int complete;
	int is_identified;  /* who asks was looked at: it is not whoever asked before */
	int wants_continue; /* the client sends the body after a reply of 100 */
	/* Not 0: the request is refused; nothing more of the connection can be read. */
	int refusal;
	const char *refusal_text;
};

/* A body of more than `body_limit` bytes is refused. */
void http_request_init(struct http_request *request, size_t body_limit);
/* Wipes what is secret, and frees the texts with room for more bytes than these. 0: it ends. */
void http_request_free(struct http_request *request, size_t kept);
/* Before the next request of the connection. */
void http_request_reset(struct http_request *request);

/*
 * Takes bytes until the request is complete or refused. Returns how many were taken; the others
 * belong to the next request.
 */
size_t http_request_feed(struct http_request *request, const char *bytes, size_t len);

/* The value of a header that it has once; else NULL. */
const char *http_request_one(const struct http_request *request, enum http_text_of of);

#define HTTP_JSON "application/json"

/* Whether the body is JSON by its Content-Type. */
int http_request_is_json(const struct http_request *request);

/* Whether the body is sent as it is: its Content-Encoding is absent or identity. */
int http_request_is_plain(const struct http_request *request);

/* Whether the client has what is tagged so already: by one tag in If-None-Match, or by `*`. */
int http_request_has_tag(const struct http_request *request, const char *tag);
