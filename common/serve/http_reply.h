/* A reply of evhttp, without its body after HEAD. */
#ifndef COMMON_SERVE_HTTP_REPLY_H
#define COMMON_SERVE_HTTP_REPLY_H

#include <stddef.h>

struct evbuffer;
struct evhttp_request;

/* Takes ownership of the body. */
void http_reply(struct evhttp_request *request, int status, const char *type,
		struct evbuffer *body);
/* JSON, and a newline after it. */
void http_reply_json(struct evhttp_request *request, int status, const char *text, size_t len);

#endif
