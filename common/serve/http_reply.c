#include "common/serve/http_reply.h"

#include "common/check.h"

#include <event2/buffer.h>
#include <event2/http.h>

/* evhttp would send the body after HEAD too, which must have none. */
void http_reply(struct evhttp_request *request, int status, const char *type, struct evbuffer *body)
{
	if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD)
		evbuffer_drain(body, evbuffer_get_length(body));
	evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", type);
	evhttp_send_reply(request, status, NULL, body);
	evbuffer_free(body);
}

void http_reply_json(struct evhttp_request *request, int status, const char *text, size_t len)
{
	struct evbuffer *body = evbuffer_new();

	check(body != NULL);
	evbuffer_add(body, text, len);
	evbuffer_add(body, "\n", 1);
	http_reply(request, status, "application/json", body);
}
