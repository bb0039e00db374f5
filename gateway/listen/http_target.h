/*
 * The target of a request: its path, of which operation it is, and its query, which becomes the
 * object that the socket API would get.
 */
#pragma once

#include "common/message/receive.h"
#include "gateway/listen/http_request.h"
#include "gateway/listen/request.h"

#include <stddef.h>

/* In the text of the request, as it came. */
struct http_target {
	const char *path;
	const char *query;
	int has_fragment;
	const char *user; /* in the path, percent-encoded; NULL: none */
	size_t user_len;
};

/* Cuts the target of the request into its parts. 0, or -1: it is neither a path nor a URL. */
int http_target_parse(struct http_request *request, struct http_target *target);

/* The operation of the path, whose user is then known; OP_COUNT: it is of none. */
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
 * parser for all requests; NULL: not a query. `user`: that of the path, or NULL.
 */
char *http_query_object(const char *query, const struct user_id *user);
