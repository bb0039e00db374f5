/*
 * What clients write into headers, paths and queries, each by the specification that defines it.
 * The texts are arbitrary bytes; each function reads them once, and keeps nothing.
 */
#pragma once

#include "common/message/receive.h"
#include "gateway/listen/http_request.h"
#include "gateway/listen/request.h"

#include <stddef.h>

/*
 * Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): a string of RFC 9651, in quotes and
 * without parameters, or bare, as most clients send it. 0 and the key with its NUL; -1: it is no
 * key of the protocol.
 */
int http_key_parse(const char *text, size_t len, char key[RECEIVE_KEY_MAX + 1]);

enum http_accept {
	ACCEPT_JSON,    /* also for what is not done */
	ACCEPT_PROBLEM, /* for what is not done: application/problem+json of RFC 9457 */
	ACCEPT_NEITHER
};

/*
 * Accept, a list of media types. Problems must be named. Parameters are ignored, also `q`: a client
 * that names a type can read it.
 */
enum http_accept http_accept_parse(const char *text, size_t len);

/*
 * A segment of a path, percent-decoded once, with its NUL. Returns the length; -1: a % without two
 * hexadecimal digits, NUL, or more than `room` - 1 bytes.
 */
int http_segment_decode(const char *text, size_t len, char *out, size_t room);

/*
 * Cuts the target of the request into its parts, unless that was done before: a request is handled
 * again when the stores were asked for its key. 0, or -1: it is neither a path nor a URL.
 */
int http_target_parse(struct http_request *request, struct http_target *target);

/* The operation of the path, whose user or code is then known; OP_COUNT: it is of none. */
enum request_op http_target_op(struct http_target *target);

/* The user of the path. 0, or -1 and why it is none. */
int http_target_user(const struct http_target *target, struct user_id *user,
		     char why[USER_ID_WHY_SIZE]);

/*
 * The first % of the query that is not followed by two hexadecimal digits, or is followed by those
 * of NUL; NULL: there is none.
 */
const char *http_query_fault(const char *query);

/*
 * The parameters of a query without fault as a JSON object's text (malloc), so that there is one
 * parser for all requests; NULL: not a query. `member`: what the path has named, or NULL.
 */
char *http_query_object(const char *query, const char *member, const char *value);
