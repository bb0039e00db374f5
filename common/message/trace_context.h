/*
 * W3C Trace Context (https://www.w3.org/TR/trace-context/): what a caller's tracing says of a
 * request, and what of it is handed on with an accepted one, to the message, the events and logs.
 */
#pragma once

#include "common/message/receive.h"

#include <stddef.h>

#define TRACE_ID_LEN 32
#define TRACE_SPAN_LEN 16
#define TRACE_PARENT_LEN 55 /* of traceparent in version 00 */

struct trace_context {
	char trace_id[TRACE_ID_LEN + 1];
	char span_id[TRACE_SPAN_LEN + 1];
	int is_sampled;
};

/* traceparent, of version 00 or later. 0, or -1: it is none. */
int trace_context_parse(const char *text, size_t len, struct trace_context *context);

/*
 * What is handed on, as one text: traceparent and, if the request has one, a space and its id. All
 * of it is printable ASCII.
 */

#define REQUEST_NAME_MAX 128 /* bytes of an id in X-Request-Id */
#define TRACE_MAX (TRACE_PARENT_LEN + 1 + REQUEST_NAME_MAX)
#define TRACE_SIZE (TRACE_MAX + 1)

/* Whether it is an id: 1 to 128 bytes of '!' to '~'. */
int request_name_valid(const char *text, size_t len);

/* Writes it and its NUL. `name` may be NULL. */
void trace_context_format(const struct trace_context *context, const char *name,
			  char out[TRACE_SIZE]);
/* Whether it is as trace_context_format() writes it, of a request that is sampled. */
int trace_context_valid(const char *text, size_t len);
/* The request's id in it, or an empty text. */
const char *trace_context_name(const char *trace);

/* Logs what became of a traced receive (receive_traced). */
void trace_context_log(const char *trace, const struct receive *receive, const char *outcome);
