/*
 * The access log (COUPON_LOG_ACCESS): a line, event=request, for each answer that intake_logs() has
 * chosen. It has no secret: of who asks only the id of the key, and of what the client wrote only
 * the coupon and the names that it gives to its request.
 */
#pragma once

#include "common/message/trace_context.h"
#include "gateway/listen/intake.h"

/* An HTTP request, as far as the client and its path tell. */
struct access_http {
	const char *of; /* the operation or page; NULL: none */
	int status;
	char id[REQUEST_NAME_MAX + 1]; /* X-Request-Id */
	struct trace_context trace;    /* empty: none */
	const struct api_key *key;     /* NULL: none */
};

/* `request` is NULL where none was parsed. */
void access_log_line(const struct client *client, const struct request *request,
		     enum answer answer);
void access_log_http(const struct client *client, const struct request *request, enum answer answer,
		     const struct access_http *http);
